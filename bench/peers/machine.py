"""What the figures were measured on, read from /proc.

In: nothing. Out: a dictionary for the results file and the flags of the processor.
Must not happen here: a figure that depends on who is looking (user, host name, folders).
"""

import os
import pathlib
import platform
import re


def _cpu_field(name):
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    match = re.search(rf"^{name}\s*:\s*(.*)$", text, re.MULTILINE)
    return match.group(1) if match else "unknown"


def cpu_flags():
    return set(_cpu_field("flags").split())


def cpu_slug():
    """The processor's name fit for a file name."""
    return re.sub(r"[^a-z0-9]+", "-", _cpu_field("model name").lower()).strip("-")


def describe():
    wanted = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16")
    os_release = platform.freedesktop_os_release()
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _cpu_field("model name"),
        "family_model": f"{_cpu_field('cpu family')}/{_cpu_field('model')}",
        "instruction_sets": [flag for flag in wanted if flag in cpu_flags()],
        "cores_of_machine": os.cpu_count(),
        "memory_gib": round(pages / 2**30),
        "system": os_release.get("PRETTY_NAME", platform.system()),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def load_average():
    """Runnable tasks over the last minute: what else the machine was doing."""
    return os.getloadavg()[0]
