"""What the kernel says about the CPU time that this process wanted and did not get."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_SCHEDSTAT = Path("/proc/thread-self/schedstat")
_CPU_STATS = (
    Path("/sys/fs/cgroup/cpu.stat"),  # control groups v2, as a container sees its own
    Path("/sys/fs/cgroup/cpu/cpu.stat"),  # v1
    Path("/sys/fs/cgroup/cpu,cpuacct/cpu.stat"),
)


@dataclass(frozen=True)
class CpuWaits:
    """Seconds since the start of the thread or of the pod.

    Args:
        delayed: this thread could run, but no core was free for it.
        throttled: the pod had used up its CPU quota.
    """

    delayed: float
    throttled: float

    def since(self, before: CpuWaits) -> CpuWaits:
        """What has come since then."""
        return CpuWaits(self.delayed - before.delayed, self.throttled - before.throttled)


def cpu_waits() -> CpuWaits:
    """Of the calling thread; what the system does not say (no Linux) is 0. Takes microseconds."""
    return CpuWaits(delayed_of(_text(_SCHEDSTAT)), _throttled())


def delayed_of(schedstat: str) -> float:
    """Seconds that a thread waited for a core, from its schedstat (proc(5)); 0 if it is empty."""
    numbers = schedstat.split()
    return int(numbers[1]) / 1e9 if len(numbers) > 1 else 0.0


def throttled_of(cpu_stat: str) -> float:
    """Seconds that a control group stood still, from its cpu.stat of v2 or v1; 0 without quota."""
    values = dict(line.split()[:2] for line in cpu_stat.splitlines() if " " in line)
    if "throttled_usec" in values:
        return int(values["throttled_usec"]) / 1e6
    return int(values.get("throttled_time", 0)) / 1e9


def _throttled() -> float:
    text = next((text for path in _CPU_STATS if (text := _text(path))), "")
    return throttled_of(text)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
