"""Counts the pods of a run that failed one after the other, on the volume of the run.

Controllers count restarts, too, but they forget: Kubeflow's Trainer makes a failed JobSet that was
removed anew, with all of its restarts (https://github.com/kubeflow/trainer/issues/3737), and the
kubelet starts the containers of a StatefulSet without end. So the count that decides whether a run
has failed for good is ours. Node 0 keeps it for all nodes, in pod_failures.json in the folder of
the run, and every node reads it before it joins the others.

A pod that was asked to go (a preemption, a drained node, `./disttrain stop`) has not failed. Nor
has one that waits for other nodes. One whose ranks had started, and that ended without a word, has:
the kernel killed it, or its machine was lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from trainer.checkpoint.durable import write_json

REVISION_VARIABLE = "DISTTRAIN_REVISION"
"""Set in a pod to a text that changes with everything the pod is made of."""
PLACE = "pod_failures.json"
WITHOUT_A_WORD = "it ended without a word, as when the kernel kills it or its machine is lost"

AFTER_FAILURE = "starting again after a failed pod: "
"""How node 0's line about it begins; `./disttrain status` reads it (cli/status/progress.py)."""


@dataclass(frozen=True)
class Count:
    """What the file holds.

    Args:
        revision: of the pods that are counted. Those of another one count anew, as something was
            changed.
        failures: how many failed one after the other.
        newest: the newest checkpoint when the last of them failed.
        reason: why that one failed.
        trains: whether ranks of a pod have started, and it has not said yet how it ends.
    """

    revision: str
    failures: int = 0
    newest: str = ""
    reason: str = ""
    trains: bool = False

    def failed(self, newest: str, reason: str) -> Count:
        """The count after one more pod has failed."""
        is_in_a_row = self.failures > 0 and newest <= self.newest
        failures = self.failures + 1 if is_in_a_row else 1
        return replace(self, failures=failures, newest=newest, reason=reason, trains=False)


class PodFailures:
    """The count of one run, as a node sees it."""

    def __init__(
        self, run_dir: Path, revision: str, most: int, writes: bool, say: Callable[[str], None]
    ):
        """
        Args:
            run_dir: folder of the run, on the volume.
            revision: of this pod; empty: nobody but the user starts this process again, so
                nothing is counted.
            most: so many may fail in a row (train.max_pod_failures).
            writes: whether this is node 0.
            say: for the user; a volume that fails ends nothing here.
        """
        self._path, self._most, self._say = run_dir / PLACE, most, say
        self._count = Count(revision)
        self._reads, self._writes = bool(revision), bool(revision) and writes
        self._has_warned = False

    def start(self, newest: Callable[[], str]) -> None:
        """Called before the nodes gather.

        Args:
            newest: reads the newest checkpoint from the volume. It is asked only where a pod of
                before has failed.
        """
        self._read()
        if self._writes and self._count.trains:
            self._write(self._count.failed(newest(), WITHOUT_A_WORD))
        self._tell(newest)

    def round_begins(self) -> None:
        """Called before the ranks are started."""
        if self._writes and not self._count.trains:
            self._write(replace(self._count, trains=True))

    def failed(self, newest: str, reason: str) -> None:
        """Called when this node gives up after restarts that have brought nothing."""
        if self._writes:
            self._write(self._count.failed(newest, reason))

    def ended(self) -> None:
        """Called when this node ends in any other way."""
        if self._writes and self._count.trains:
            self._write(replace(self._count, trains=False))

    def spent(self) -> str | None:
        """Why the run has failed for good, for people; None: it may go on."""
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
        """Say which restart this is, unless a pod before this one has brought the run further."""
        count = self._count
        if not self._writes or not count.failures or self.spent() is not None:
            return
        if newest() <= count.newest:
            self._say(
                f"{AFTER_FAILURE}{count.reason} (pod restart {count.failures} of {self._most} "
                "without a newer checkpoint)"
            )

    def _read(self) -> None:
        if not self._reads:
            return
        try:
            found = Count(**json.loads(self._path.read_text()))
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError) as error:
            self._warn(f"read ({error})")
            return
        self._count = found if found.revision == self._count.revision else self._count

    def _write(self, count: Count) -> None:
        self._count = count
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, asdict(count))
        except OSError as error:
            self._warn(f"written ({error})")

    def _warn(self, what: str) -> None:
        if not self._has_warned:  # the other nodes read it several times a second while they wait
            self._has_warned = True
            self._say(f"warning: {self._path} cannot be {what}; the run goes on")
