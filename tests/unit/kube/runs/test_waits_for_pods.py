"""How long a hand-over waits for pods that save: those of the former workload, and those of other
runs.

The API server is a stand-in here; tests/kube/test_hand_over.py asks a real one.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.kube import waiting
from infra.kube.errors import TaskError
from infra.kube.names import OWNER_LABEL, REVISION_LABEL
from infra.kube.objects import Json
from infra.kube.record import Record
from infra.kube.runs.busy import other_run
from infra.kube.runs.suspending import live_pods_of
from tests.cli.records import NOW
from tests.unit.kube.runs.gone_run import GONE, OTHER, OTHER_JOB, Server, hand_over_of
from tests.unit.kube.server import api_of
from tests.unit.stacks import deploy

STAYS = replace(GONE, ttl=None)
CHANGED = {"revision": "new", "ttl": {}}


class Saving(Server):
    """A cluster in which the pods of one owner save for some time.

    Args:
        record: the record of our run.
        owner: the owner of the pods.
        seconds: the time for which the pods save.
        other: the record of another run, whose workload is suspended or was deleted.
    """

    def __init__(
        self, record: Record, owner: str, seconds: float, other: Record | None = None
    ) -> None:
        super().__init__(record, "", other=other)
        self.job_of_other: Json | None = {"spec": {"suspend": True}}
        self.saving, self.until = owner, seconds
        self.deleted = list[Any]()
        if owner == GONE.owner:
            labels = {OWNER_LABEL: owner, REVISION_LABEL: GONE.revision}
            about = {"name": "train-indexed", "uid": "u1", "labels": labels}
            self.workload = {"apiVersion": "batch/v1", "kind": "Job", "metadata": about}

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        is_there = self.seconds < self.until
        if method == "DELETE":
            self.deleted.append(body)
        if path.endswith("/jobs/train-indexed"):
            return self.workload if is_there else None
        if path.endswith("/pods") and self.saving in query["labelSelector"]:
            pod = {"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Running"}}
            return {"items": [pod] if is_there else []}
        if path.endswith(OTHER_JOB):
            job = super().answer(method, path, query, body)
            return None if self.job_of_other is None else {**job, **self.job_of_other}
        return super().answer(method, path, query, body)


def came_up_after(server: Saving, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> float:
    """Return the number of seconds until the run may start."""
    monkeypatch.setattr(waiting, "time", server)
    hand_over_of(server, **{**CHANGED, **changes})
    assert server.now().revision == "new"
    return server.seconds


def test_former_pods_have_their_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hand-over waits as long as the former pods may save by their own grace period, even if the
    settings now have a shorter one.
    """
    server = Saving(replace(STAYS, grace_seconds=1800), GONE.owner, 900)
    assert came_up_after(server, monkeypatch, grace_seconds=120) >= 900


def test_larger_time_of_the_settings_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hand-over waits by the grace period of the settings if it is longer than that of the
    record, because the pods may have been made with either.
    """
    server = Saving(replace(STAYS, grace_seconds=5), GONE.owner, 300)
    assert came_up_after(server, monkeypatch, grace_seconds=600) >= 300


def test_suspended_pods_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hand-over waits for the pods of a run that is already suspended, for example by an
    interrupted `up`. Otherwise the next run would start beside these pods.
    """
    server = Saving(STAYS, OTHER.owner, 200, replace(OTHER, gpus=4))
    assert came_up_after(server, monkeypatch) >= 200
    assert server.changes_of_other == []


def test_run_that_makes_room_saves_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has to make room is suspended, and its pods are waited for, because the GPUs are
    free only when they have saved and ended.
    """
    server = Saving(STAYS, OTHER.owner, 200, replace(OTHER, gpus=4))
    server.job_of_other = {"spec": {}}
    assert came_up_after(server, monkeypatch) >= 200
    assert OTHER.suspend in server.changes_of_other


def test_suspended_pods_may_not_last_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the pods of a suspended run still run a minute after their grace period, the hand-over
    fails and names them.
    """
    server = Saving(STAYS, OTHER.owner, 86400, replace(OTHER, gpus=4, grace_seconds=100))
    with pytest.raises(TaskError, match=r"waited 160 s for the pods of Job train-other .*p Runn"):
        came_up_after(server, monkeypatch)
    assert server.now().revision == GONE.revision


COMPLETE = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}


@pytest.mark.parametrize("left", [None, COMPLETE], ids=["deleted", "over"])
def test_pods_outlive_the_workload_of_another(
    left: Json | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hand-over waits for the pods of another run whose workload is deleted or over. `kubectl
    delete job` returns at once, and the pods still save. Otherwise the next run would start beside
    them.
    """
    server = Saving(STAYS, OTHER.owner, 200, replace(OTHER, gpus=4, over=("Complete",)))
    server.job_of_other = left
    assert came_up_after(server, monkeypatch) >= 200
    assert server.changes_of_other == []


def test_young_run_may_be_deleted_too() -> None:
    """A young run without a workload is described by both possible causes: its `up` is about to
    make the workload, or somebody has deleted it.
    """
    run = other_run(replace(OTHER, gpus=4, since=NOW), None, NOW + timedelta(seconds=60))
    assert run is not None
    assert str(run).endswith(
        "other with 4 GPUs, which is not there: either its `pulumi up` is just about to make it, "
        "or somebody has deleted it"
    )


@pytest.mark.parametrize(("gpus", "gpus_total"), [(4, 8), (0, 8)])
def test_run_that_fits_waits_for_nobody(
    gpus: int, gpus_total: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run does not wait for pods that save if there is room beside them, or if it needs no
    GPU.
    """
    server = Saving(STAYS, OTHER.owner, 200, replace(OTHER, gpus=4))
    assert came_up_after(server, monkeypatch, gpus=gpus, gpus_total=gpus_total) == 0


def test_pods_that_go_on_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run does not wait for the pods of another run that trains on, if it fits beside that run.
    Those pods do not end, so it would wait until the time limit.
    """
    server = Saving(STAYS, OTHER.owner, 86400, replace(OTHER, gpus=2))
    server.job_of_other = {"spec": {}}
    assert came_up_after(server, monkeypatch, gpus=4, gpus_total=6) == 0
    assert server.changes_of_other == []


def test_own_former_workload_is_no_other_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose workload gets another name takes over the place of its own former workload, also
    with `whenBusy: refuse`. Otherwise it would be refused because of itself. That workload is
    deleted by its uid, so that no newer one of its name is.
    """
    server = Saving(STAYS, GONE.owner, 20)
    renamed = {**GONE.workload.to_json(), "name": "train-renamed"}
    assert came_up_after(server, monkeypatch, workload=renamed, when_busy="refuse") >= 20
    (how,) = server.deleted
    assert (how["propagationPolicy"], how["preconditions"]) == ("Foreground", {"uid": "u1"})


@pytest.mark.parametrize("trains", [True, False])
def test_run_in_a_queue_waits_for_nobody(trains: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in a queue neither ends other runs nor waits for their pods, because Kueue decides
    when it starts.
    """
    server = Saving(STAYS, OTHER.owner, 200, replace(OTHER, gpus=4))
    server.job_of_other = {"spec": {"suspend": not trains}}
    assert came_up_after(server, monkeypatch, queue="gpus") == 0
    assert server.changes_of_other == []


def test_only_live_pods_of_former_revisions_count() -> None:
    """Pods that have ended hold no GPUs, and the new pods of a run are no reason to wait."""

    class Pods(Server):
        def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
            if not path.endswith("/pods"):
                return super().answer(method, path, query, body)
            named = {"old": "Running", "new": "Running", "done": "Succeeded", "broken": "Failed"}
            return {
                "items": [
                    {
                        "metadata": {"name": name, "labels": {REVISION_LABEL: name}},
                        "spec": {},
                        "status": {"phase": phase},
                    }
                    for name, phase in named.items()
                ]
            }

    api = api_of(Pods(STAYS, ""))
    said = live_pods_of(api, GONE.namespace, GONE.owner, not_revision="new")
    assert "old" in said
    assert not {"new", "done", "broken"} & set(re.findall("[a-z]+", said))
    assert "new" in live_pods_of(api, GONE.namespace, GONE.owner)


@pytest.mark.parametrize("changes", [CHANGED, {"ttl": {}, "made_again": True}])
def test_pods_of_a_workload_that_was_deleted_are_waited_for(
    changes: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hand-over waits for the pods of the run's own workload that somebody has deleted. `kubectl
    delete job` returns at once, and the pods still save. Otherwise old and new pods would write the
    same run.
    """
    monkeypatch.setattr(waiting, "time", server := Saving(STAYS, GONE.owner, 25))
    server.workload = None
    hand_over_of(server, **changes)
    assert server.seconds >= 25
    assert server.now().since > GONE.since


def test_engine_waits_longer_than_the_task(tmp_path: Path) -> None:
    """The engine gives the hand-over more than a day, because runs of other stacks may save for
    longer than this one. Otherwise the engine would end the task.
    """
    changes = {"topology": "indexed-job", "terminationGraceSeconds": "30"}
    made = deploy("sandbox-multipod", tmp_path, changes).one("training-hand-over")
    assert int(made.request.customTimeouts.create.removesuffix("s")) > 86400
