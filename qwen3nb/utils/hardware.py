"""Describe this machine without loading a library that would claim its GPUs."""

import os
import platform
import re
import resource
import shutil
import sys
from pathlib import Path

from qwen3nb.utils.children import run_program

_STATUS = Path("/proc/self/status")
_UUID = re.compile(r"\(UUID: ([\w/-]+)\)")  # such as (UUID: GPU-0a1b) or (UUID: MIG-0a1b)


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
    if folder.exists():
        return folder
    return nearest(folder.resolve().parent)


def resident_memory() -> int:
    """Return the resident memory of this process in bytes."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak_memory() -> int:
    """Return the peak resident memory of this process in bytes."""
    if _STATUS.is_file():  # on Linux, `getrusage` includes the peak of the parent process
        for line in _STATUS.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM"):  # VmHWM:    812345 kB
                _, kibibytes, _ = line.split()
                return 1024 * int(kibibytes)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS reports bytes, other systems kibibytes.
    if sys.platform == "darwin":
        return peak
    return 1024 * peak


def _container(name: str, default: int = 1 << 62) -> int:
    """Return a limit of the container in bytes, or the default if it has none."""
    file = Path("/sys/fs/cgroup") / name
    if not file.is_file():
        return default
    text = file.read_text(encoding="ascii").strip()
    if not text.isdigit():
        return default
    return int(text)


def processor() -> str:
    """Return name, family and model of the processor; cloud machines often hide the name."""
    fields = _first_core()
    parts = [fields.get("model name", platform.processor() or platform.machine())]
    for key in ("cpu family", "model"):
        if key in fields:
            parts.append(f"{key} {fields[key]}")
    return " ".join(parts)


def vendor() -> str:
    """Return the vendor of the processor, such as ``AuthenticAMD``; empty if unknown."""
    name = _first_core().get("vendor_id") or platform.processor().rpartition(" ")[2]
    if name in ("AuthenticAMD", "GenuineIntel"):
        return name
    return ""


def _first_core() -> dict[str, str]:
    """Return the fields of the first core in /proc/cpuinfo; empty except on Linux."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return {}
    fields: dict[str, str] = {}
    # Cores are separated by empty lines, and have lines such as "model name : Intel Xeon".
    first_core, _, _ = info.read_text(encoding="utf-8").partition("\n\n")
    for line in first_core.splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    return fields


def gpus() -> list[str]:
    """Return the ids of the usable GPUs or MIG slices, as in ``CUDA_VISIBLE_DEVICES``."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return _ids_from_nvidia_smi()
    ids: list[str] = []
    for name in visible.split(","):
        gpu = name.strip()
        if gpu in ("", "-1", "NoDevFiles"):  # CUDA uses the ids before the first invalid one
            break
        ids.append(gpu)
    return ids


def _ids_from_nvidia_smi() -> list[str]:
    """Return the id of each GPU, or of its MIG slices."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    process = run_program([tool, "-L"], timeout=60)
    if process.returncode:
        return []
    ids: list[str] = []
    gpu_id = ""
    # The slices of a GPU are listed below it, each with a UUID of its own.
    for line in process.stdout.splitlines():
        match = _UUID.search(line)
        if match is None:
            continue
        if line.startswith("GPU"):
            gpu_id = match[1]
        # A GPU with slices cannot be used as a whole.
        elif gpu_id in ids:
            ids.remove(gpu_id)
        ids.append(match[1])
    return ids
