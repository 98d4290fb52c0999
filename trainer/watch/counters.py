"""Reads from the kernel how much CPU time a thread or a pod wanted and did not get."""

from __future__ import annotations

import os
from dataclasses import dataclass

_SCHEDSTAT = "/proc/thread-self/schedstat"
_CPU_STATS = (
    "/sys/fs/cgroup/cpu.stat",  # control groups v2, as a container sees its own
    "/sys/fs/cgroup/cpu/cpu.stat",  # v1
    "/sys/fs/cgroup/cpu,cpuacct/cpu.stat",
)
# Pressure stall information of the pod. That of the machine is no use: if other processes always
# use all cores, it grows all the time.
_PRESSURE = "/sys/fs/cgroup/cpu.pressure"  # v2
_MOST_BYTES = 4096


@dataclass(frozen=True)
class CpuWaits:
    """Seconds in total, since the counters began.

    Args:
        delayed: Seconds in which the thread could run, but no core was free for it.
        throttled: Seconds in which the pod stood still, because it had used up its CPU quota.
        pressed: Seconds in which a thread of the pod could run, but no core was free for it.
    """

    delayed: float = 0.0
    throttled: float = 0.0
    pressed: float = 0.0

    def since(self, before: CpuWaits) -> CpuWaits:
        """Return the seconds since the earlier reading `before`."""
        return CpuWaits(
            self.delayed - before.delayed,
            self.throttled - before.throttled,
            self.pressed - before.pressed,
        )


class CpuCounters:
    """The counters of the thread that creates this object.

    The files are kept open, because to open them takes longer than to read them.
    """

    def __init__(self) -> None:
        self._schedstat = _opened(_SCHEDSTAT)
        found = (_opened(path) for path in _CPU_STATS)
        self._cpu_stat = next((number for number in found if number is not None), None)
        self._pressure = _opened(_PRESSURE)

    def read(self) -> CpuWaits:
        """Read the counters; 0 for what the system does not count (not Linux, cgroups v1)."""
        return CpuWaits(
            delayed_of(_text(self._schedstat)),
            throttled_of(_text(self._cpu_stat)),
            pressed_of(_text(self._pressure)),
        )


def delayed_of(schedstat: str) -> float:
    """Return how many seconds a thread has waited for a core.

    `schedstat`: the content of the thread's schedstat (proc(5)); if it is empty, the result is 0.
    """
    numbers = schedstat.split()
    return int(numbers[1]) / 1e9 if len(numbers) > 1 else 0.0


def throttled_of(cpu_stat: str) -> float:
    """Return how many seconds a control group was throttled; 0 if it has no quota.

    `cpu_stat`: the content of the group's cpu.stat, of version 2 or 1.
    """
    for name, unit in (("throttled_usec ", 1e6), ("throttled_time ", 1e9)):
        _, found, rest = cpu_stat.partition(name)
        if found:
            return int(rest.split()[0]) / unit
    return 0.0


def pressed_of(pressure: str) -> float:
    """Return in how many seconds some thread waited for a core; 0 if `pressure` is empty.

    `pressure`: the content of a file of pressure stall information, whose first line has the
    number: https://docs.kernel.org/accounting/psi.html.
    """
    some, _, _ = pressure.partition("\n")
    _, found, total = some.partition(" total=")
    return int(total) / 1e6 if found else 0.0


def _opened(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _text(descriptor: int | None) -> str:
    if descriptor is None:
        return ""
    try:
        return os.pread(descriptor, _MOST_BYTES, 0).decode()
    except OSError:
        return ""
