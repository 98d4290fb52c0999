"""What `./disttrain resume` says if another run has the GPUs.

The API server is a stand-in here; tests/kube/test_hand_over.py asks a real one.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from infra.kube import names
from infra.kube.errors import TaskError
from infra.kube.record import COLLECTION, record_path
from infra.kube.runs import hand_over, steer
from infra.kube.workload import Workload
from tests.cli.records import RECORD
from tests.unit.kube.server import ApiServer, Json, api_of

OTHER = replace(
    RECORD, owner="22222222", stack="other", workload=Workload("batch/v1", "Job", "train-other")
)
JOBS = "/apis/batch/v1/namespaces/disttrain/jobs"


def job(owner: str, suspend: bool) -> Json:
    """Return a Job of the run of this owner."""
    labels = {names.OWNER_LABEL: owner, names.REVISION_LABEL: RECORD.revision}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "any", "uid": owner, "labels": labels},
        "spec": {"suspend": suspend},
    }


class Cluster(ApiServer):
    """A cluster in which the run is stopped, and another run has the GPUs."""

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        assert method == "GET"
        records = {each.owner: each.to_object("disttrain") for each in (RECORD, OTHER)}
        kind = {"name": "jobs", "kind": "Job", "namespaced": True}
        return {
            "/api/v1/namespaces/disttrain": {"metadata": {"name": "disttrain"}},
            "/apis/batch/v1": {"resources": [kind]},
            f"{JOBS}/train-singlepod": job(RECORD.owner, suspend=True),
            f"{JOBS}/train-other": job(OTHER.owner, suspend=False),
            COLLECTION.format("disttrain"): {"items": list(records.values())},
            record_path("disttrain", OTHER.owner): records[OTHER.owner],
            record_path("disttrain", RECORD.owner): records[RECORD.owner],
            "/api/v1/namespaces/disttrain/pods": {"items": []},
        }.get(path)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Return the error of `./disttrain resume --when-busy CHOICE`, whose wait is over at once."""
    lock = SimpleNamespace(check=lambda: None)
    monkeypatch.setattr(hand_over, "held", lambda *_: nullcontext(lock))
    api = api_of(Cluster())
    monkeypatch.setattr(api, "now", lambda: RECORD.since)
    with pytest.raises(TaskError) as refused:
        steer.resume(api, RECORD, request.param, 0)
    return str(refused.value)


@pytest.mark.parametrize("said", ["refuse"], indirect=True)
def test_other_choice_names_the_run_that_is_resumed(said: str) -> None:
    """The command in the error names the stack of the run. Otherwise it would resume the run of the
    selected stack.
    """
    assert said.startswith("--when-busy refuse, and 3 of 4 GPUs that this run needs are taken by")
    assert said.endswith("./disttrain resume --stack dev --when-busy wait (or replace)")


@pytest.mark.parametrize("said", ["wait"], indirect=True)
def test_wait_by_flag_names_no_setting(said: str) -> None:
    """The error at the limit of `--when-busy wait` names the flag. It does not name the setting
    `whenBusyTimeoutSeconds`, which has no effect on the command.
    """
    assert said.startswith("waited 0 s (the longest wait of --when-busy wait; type the command ")
    assert "for the end of Job train-other of stack other" in said
    assert "whenBusy" not in said
