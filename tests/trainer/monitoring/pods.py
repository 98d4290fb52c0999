"""Pods whose waits for a core the kernel counts: control groups v2, seen as a container sees them.

As root. A machine with version 1 has them too, without limits.
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
    """For each pod a command that executes, in the pod, the one that follows it.

    The processes have to end before this does.
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
    try:
        group.rmdir()
    except OSError as reason:  # a process that has ended just now is still in it
        return str(reason)
    return None
