"""A hand-over whose lock another command has taken meanwhile, because it could not be renewed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from infra.kube import waiting
from infra.kube.errors import TaskError
from infra.kube.names import OWNER_LABEL, REVISION_LABEL
from infra.kube.record import Record
from tests.unit.kube.runs.gone_run import GONE, OTHER, Server, hand_over_of

FORMER = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "train-indexed",
        "uid": "u1",
        "labels": {OWNER_LABEL: GONE.owner, REVISION_LABEL: GONE.revision},
    },
}


class Written(Server):
    """A cluster that notes each request that changes something."""

    def __init__(self, other: Record | None, workload: Any) -> None:
        super().__init__(replace(GONE, ttl=None), "", other=other)
        self.workload = workload
        self.changes = list[tuple[str, str]]()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        if method != "GET":
            self.changes.append((method, path))
        return super().answer(method, path, query, body)


def lost() -> None:
    """Answer for a lock that another command has taken."""
    raise TaskError("this command lost the lock")


@pytest.mark.parametrize(
    ("other", "workload", "changes"),
    [
        (replace(OTHER, gpus=4), None, {"revision": "new"}),
        (None, FORMER, {"revision": "new"}),
        (None, None, {"revision": "new"}),
        (None, None, {}),
    ],
    ids=["another run trains", "former workload", "room for it", "others stay"],
)
def test_hand_over_without_its_lock_changes_nothing(
    other: Record | None,
    workload: Any,
    changes: Mapping[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command that has the lock now may have given the GPUs to another run. So the first one
    ends before it suspends a run, deletes a workload or writes a record.
    """
    server = Written(other, workload)
    monkeypatch.setattr(waiting, "time", server)
    with pytest.raises(TaskError, match="lost the lock"):
        hand_over_of(server, check=lost, ttl={}, **changes)
    assert server.changes == []
