"""Notices that the kernel has killed a process of this pod for lack of memory.

Such a process cannot say why it ends. The kernel counts the processes that it kills, in a file of
the pod's control group (cgroup). Kubernetes mostly lets the kernel kill the whole pod; then nobody
reads the file, and the state of the pod is OOMKilled.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainer.launch.exit_codes import ExitCode
from trainer.launch.status_files import ExitReport

PLACES = (
    Path("/sys/fs/cgroup/memory.events"),  # cgroup 2, in a container
    Path("/sys/fs/cgroup/memory/memory.oom_control"),  # cgroup 1, in a container
)
MORE_MEMORY = (
    "give each rank more memory (memoryLimitPerRank if it is set, and memoryPerRank), or let it "
    "need less (docs/operations.md#training-runs-badly)"
)


class MemoryKills:
    """Compares the kernel's count now with that at the start of the ranks."""

    def __init__(self) -> None:
        self._before = _count()

    def explain(self, report: ExitReport) -> ExitReport:
        """Return the report, with what to do if the kernel has killed a process since the start.

        Only the reason of a failure that may be tried again is changed. Without a container there
        may be no count; then nothing is changed.
        """
        if report.code != ExitCode.RETRYABLE or _count() <= self._before:
            return report
        why = f"the kernel killed a process of this pod for lack of memory: {MORE_MEMORY}"
        return replace(report, reason=f"{report.reason}; {why}")


def _count() -> int:
    """Return how many processes of this pod the kernel has killed; 0 if that cannot be read."""
    for path in PLACES:
        with suppress(OSError):
            for line in path.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0
