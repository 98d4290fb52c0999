"""Pods in control groups of version 2, in which the kernel counts their waits for a core.

The pods see the groups as a container does. It needs root. A machine with version 1 has such groups
too, but without limits.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sandbox.cgroups import CGROUP_ROOT, is_version_2
from sandbox.waiting import wait_until
from tests.trainer.monitoring.quota import JOIN


@contextmanager
def counted_pods(count: int) -> Iterator[list[Sequence[str]]]:
    """Yield for each pod the first words of a command line that runs the rest of it in the pod.

    The processes have to end before the block does.
    """
    root = CGROUP_ROOT if is_version_2(CGROUP_ROOT) else CGROUP_ROOT / "unified"
    groups = [root / f"disttrain-pod-{uuid.uuid4().hex[:8]}" for _ in range(count)]
    for group in groups:
        group.mkdir()
    try:
        yield [["sh", "-ec", JOIN, "sh", str(group), str(CGROUP_ROOT)] for group in groups]
    finally:
        for group in groups:
            wait_until(
                f"the end of all processes in {group}",
                lambda group=group: _why_it_stays(group),
                timeout_seconds=60,
            )


def _why_it_stays(group: Path) -> str | None:
    """Remove the group; return why that is not possible yet, or None."""
    try:
        group.rmdir()
    except OSError as reason:  # a process that has just ended still counts
        return str(reason)
    return None
