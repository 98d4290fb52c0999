"""Counts the pods of a run that failed one after the other, on the volume of the run.

Controllers count restarts too, but they forget them: if a failed JobSet is removed, Kubeflow's
Trainer makes it again with all of its restarts (https://github.com/kubeflow/trainer/issues/3737),
and the kubelet restarts the containers of a StatefulSet without end. So this count decides whether
a run has failed for good. Node 0 keeps it for all nodes, in pod_failures.json in the run's folder,
and every node reads it before it joins the other nodes.

A pod that was asked to end (a preemption, a drained node, `./disttrain stop`) has not failed. A pod
that waits for other nodes has not failed either. But a pod has failed whose ranks had started and
that ended without recording how: the kernel killed it, or its machine was lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from trainer.checkpoint.durable import write_json
from trainer.launch.memory_kills import MORE_MEMORY
from trainer.launch.work import is_newer

REVISION_VARIABLE = "DISTTRAIN_REVISION"
"""Set in a pod to a text that changes if anything changes of which the pod is made."""
PLACE = "pod_failures.json"
WITHOUT_A_WORD = (
    "it ended without a word: its machine was lost, or the kernel killed it for lack of memory "
    f"(OOMKilled). If so, {MORE_MEMORY}"
)

AFTER_FAILURE = "starting again after a failed pod: "
"""How node 0's line about a failed pod begins; cli/status/progress.py reads such lines."""


@dataclass(frozen=True)
class Count:
    """The content of the file.

    Args:
        revision: The revision of the pods that are counted. Pods of another revision are counted
            from 0, because something was changed.
        failures: How many pods have failed one after the other.
        newest: The newest checkpoint when the last of these pods failed.
        reason: Why the last of these pods failed.
        trains: Whether the ranks of a pod have started and the pod has not yet recorded its end.
    """

    revision: str
    failures: int = 0
    newest: str = ""
    reason: str = ""
    trains: bool = False

    def failed(self, newest: str, reason: str) -> Count:
        """Return the count after one more pod has failed."""
        is_in_a_row = self.failures > 0 and not is_newer(newest, self.newest)
        failures = self.failures + 1 if is_in_a_row else 1
        return replace(self, failures=failures, newest=newest, reason=reason, trains=False)


class PodFailures:
    """Reads the count of one run, and writes it on node 0."""

    def __init__(
        self, run_dir: Path, revision: str, most: int, writes: bool, say: Callable[[str], None]
    ):
        """
        Args:
            run_dir: The run's folder on the volume.
            revision: The revision of this pod. If it is empty, only the user restarts this
                process, and nothing is counted.
            most: How many pods may fail in a row (train.max_pod_failures).
            writes: Whether this is node 0.
            say: Prints a line for the user. If the volume fails, there is only a warning.
        """
        self._path, self._most, self._say = run_dir / PLACE, most, say
        self._count = Count(revision)
        self._reads, self._writes = bool(revision), bool(revision) and writes
        self._known: set[Count | None] = {None}
        """What the file can hold if no other pod has written it: nothing (None), or what this pod
        has read or written there. Anything else is from another pod."""
        self._has_warned = self._is_replaced = False

    def start(self, newest: Callable[[], str]) -> None:
        """Count an earlier pod that ended without recording how, and say which restart this is.

        Call this before the nodes gather.

        Args:
            newest: Reads the newest checkpoint from the volume. It is called only if an earlier pod
                has failed.
        """
        self._read()
        if self._writes and self._count.trains:
            self._write(self._count.failed(newest(), WITHOUT_A_WORD))
        self._tell(newest)

    def round_begins(self) -> None:
        """Record that ranks of this pod run. Call this before the ranks are started."""
        if self._writes and not self._count.trains:
            self._write(replace(self._count, trains=True))

    def failed(self, newest: str, reason: str) -> None:
        """Count this pod as failed: its restarts of the ranks have brought no progress.

        Args:
            newest: The newest checkpoint.
            reason: Why the last start failed.
        """
        if self._writes:
            self._write(self._count.failed(newest, reason))

    def ended(self) -> None:
        """Record that this pod ends, or was asked to end, without a failure that counts.

        A controller may start the next pod of node 0 as soon as this one is asked to end, as the
        Job of an MPIJob's launcher does. So only the first call writes, before the next pod does.
        """
        if self._writes and self._count.trains:
            self._write(replace(self._count, trains=False))

    def spent(self) -> str | None:
        """Return a text that says why the run has failed for good; None if it may go on."""
        if not self._writes:  # node 0 has written it itself
            self._read()
        count = self._count
        if count.failures <= self._most:
            return None
        pods = "1 pod" if count.failures == 1 else f"{count.failures} pods in a row"
        return (
            f"{pods} failed without a newer checkpoint "
            f"(train.max_pod_failures is {self._most}); the last one: {count.reason}. When the "
            "cause is mended, change a setting of the run, such as run.train.max_pod_failures, and "
            "run pulumi up: pods of changed settings are counted anew"
        )

    def _tell(self, newest: Callable[[], str]) -> None:
        """Say which restart this is, unless there is a newer checkpoint than at the failure."""
        count = self._count
        if not self._writes or not count.failures or self.spent() is not None:
            return
        if not is_newer(newest(), count.newest):
            self._say(
                f"{AFTER_FAILURE}{count.reason} (pod restart {count.failures} of {self._most} "
                "without a newer checkpoint)"
            )

    def _read(self) -> None:
        found = self._on_volume()
        self._known = {None, found}
        if found is not None and found.revision == self._count.revision:
            self._count = found

    def _on_volume(self) -> Count | None:
        """Return what the file holds now; None if there is none, or if it cannot be read."""
        if not self._reads:
            return None
        try:
            return Count(**json.loads(self._path.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            self._warn(f"read ({error})")
            return None

    def _write(self, count: Count) -> None:
        """Write the count, unless another pod of node 0 has written one since this pod did.

        Where a machine has lost its network but still has the volume, its pod may run on while the
        next pod of node 0 counts. That pod has counted this one as failed already.
        """
        self._count = count
        if self._on_volume() not in self._known:
            if not self._is_replaced:
                self._is_replaced = True
                self._say(
                    f"another pod of node 0 has written {self._path} since this one did, so this "
                    "pod counts its failures there no longer"
                )
            return
        self._known.add(count)  # an error may come after the file is in its place
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, asdict(count))
            self._known = {None, count}
        except OSError as error:
            self._warn(f"written ({error})")

    def _warn(self, what: str) -> None:
        if not self._has_warned:  # waiting nodes read the file several times a second
            self._has_warned = True
            self._say(f"warning: {self._path} cannot be {what}; the run goes on")
