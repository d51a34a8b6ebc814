"""Describe this machine without loading a library that would claim its GPUs."""

import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from qwen3nb.utils.signals import heed_children

_STATUS = Path("/proc/self/status")
_UUID = re.compile(r"\(UUID: ([\w/-]+)\)")


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory() -> int:
    """Return the memory available without swapping, in bytes."""
    import psutil

    free = _container("memory.max") - _container("memory.current", default=0)
    return min(psutil.virtual_memory().available, max(free, 0))


def free_disk(folder: Path) -> int:
    """Return the free bytes of the disk of ``folder``, which need not exist."""
    return shutil.disk_usage(nearest(folder)).free


def nearest(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(each for each in (folder, *folder.resolve().parents) if each.exists())


def resident_memory() -> int:
    """Return the resident memory of this process in bytes."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes."""
    if _STATUS.is_file():  # on Linux, `getrusage` includes the peak of the parent process
        lines = _STATUS.read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _container(name: str, default: int = 1 << 62) -> int:
    file = Path("/sys/fs/cgroup") / name
    text = file.read_text(encoding="ascii").strip() if file.is_file() else "max"
    return int(text) if text.isdigit() else default


def processor() -> str:
    """Return name, family and model of the processor; cloud machines often hide the name."""
    facts = _first_core()
    parts = [facts.get("model name", platform.processor() or platform.machine())]
    parts += [f"{key} {facts[key]}" for key in ("cpu family", "model") if key in facts]
    return " ".join(parts)


def vendor() -> str:
    """Return the vendor of the processor, such as ``AuthenticAMD``; empty if unknown."""
    known = _first_core().get("vendor_id") or platform.processor().rpartition(" ")[2]
    return known if known in ("AuthenticAMD", "GenuineIntel") else ""


def _first_core() -> dict[str, str]:
    """Return the fields of the first core in /proc/cpuinfo; empty except on Linux."""
    info = Path("/proc/cpuinfo")
    first = info.read_text(encoding="utf-8").partition("\n\n")[0] if info.is_file() else ""
    lines = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def gpus() -> list[str]:
    """Return the ids of the usable GPUs or MIG slices, as in ``CUDA_VISIBLE_DEVICES``."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return _listed()
    ids = [each.strip() for each in visible.split(",")]
    # CUDA uses the ids before the first invalid one.
    ends = next((i for i, each in enumerate(ids) if each in ("", "-1", "NoDevFiles")), len(ids))
    return ids[:ends]


def _listed() -> list[str]:
    """Return the id of each GPU, or of its MIG slices."""
    if (tool := shutil.which("nvidia-smi")) is None:
        return []
    heed_children()
    done = subprocess.run([tool, "-L"], capture_output=True, text=True, check=False, timeout=60)
    ids: list[str] = []
    whole = ""
    for line in done.stdout.splitlines() if not done.returncode else ():
        if match := _UUID.search(line):
            if line.startswith("GPU"):
                whole = match[1]
            elif whole in ids:
                ids.remove(whole)
            ids.append(match[1])
    return ids
