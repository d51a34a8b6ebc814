"""This machine, without loading a library that would claim its GPUs."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = [
    "available_memory",
    "cores",
    "gpu_names",
    "gpus",
    "peak_memory",
    "processor",
    "resident_memory",
    "total_memory",
]

_STATUS = Path("/proc/self/status")
_GPU = re.compile(r"GPU \d+: (?P<name>.*) \(UUID: (?P<id>GPU-[\w-]+)\)")
_SLICE = re.compile(r"\s+(?P<name>MIG .*?)\s+Device\s+\d+: \(UUID: (?P<id>MIG-[\w/-]+)\)")


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def total_memory() -> int:
    """Bytes of memory, or of this container's share."""
    import psutil

    return min(psutil.virtual_memory().total, _container("memory.max"))


def available_memory() -> int:
    """Bytes that can be had without swapping."""
    import psutil

    free = _container("memory.max") - _container("memory.current", default=0)
    return min(psutil.virtual_memory().available, max(free, 0))


def resident_memory() -> int:
    """Bytes of memory that this process holds."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak_memory() -> int | None:
    """The most bytes that this process held so far; None where that is not known."""
    if _STATUS.is_file():  # on Linux `getrusage` starts from what the parent process held
        lines = _STATUS.read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _container(name: str, default: int = 1 << 62) -> int:
    file = Path("/sys/fs/cgroup") / name
    text = file.read_text(encoding="ascii").strip() if file.is_file() else "max"
    return int(text) if text.isdigit() else default


def processor() -> str:
    """The processor's name, family and model: names alone hide what they are in the cloud."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return platform.processor() or platform.machine()
    first = info.read_text(encoding="utf-8").partition("\n\n")[0]
    facts = {
        key.strip(): value.strip()
        for key, _, value in (line.partition(":") for line in first.splitlines())
    }
    parts = [facts.get("model name", platform.machine())]
    parts += [f"{key} {facts[key]}" for key in ("cpu family", "model") if key in facts]
    return " ".join(parts)


def gpus() -> list[str]:
    """What ``CUDA_VISIBLE_DEVICES`` calls each GPU, or slice of one, that may be used."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [id_ for _, id_ in _listed()]
    ids = [each.strip() for each in chosen.split(",")]
    # CUDA takes those before the first that is none.
    ends = next((i for i, each in enumerate(ids) if each in ("", "-1", "NoDevFiles")), len(ids))
    return ids[:ends]


def gpu_names() -> list[str]:
    """Names of all GPUs and slices of the machine."""
    return [name for name, _ in _listed()]


def _listed() -> list[tuple[str, str]]:
    """Name and id of each GPU; of one that is cut into slices, of each slice."""
    if (tool := shutil.which("nvidia-smi")) is None:
        return []
    done = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False, timeout=60)
    found: list[tuple[str, str]] = []
    whole = None
    for line in done.stdout.splitlines() if not done.returncode else ():
        if match := _GPU.match(line):
            whole = (match["name"], match["id"])
            found.append(whole)
        elif (match := _SLICE.match(line)) and whole is not None:
            if found[-1] == whole:
                found.pop()
            found.append((f"{whole[0]}, {match['name']}", match["id"]))
    return found
