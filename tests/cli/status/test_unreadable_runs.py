"""`status` shows all other runs of a platform when one run cannot be seen.

The API server is a table of answers here, which refuses as a real one does.
"""

import json
from dataclasses import replace

import pytest

from cli.status.judge import RunStatus
from cli.status.snapshot import take_snapshot
from infra.kube.api_server.access import Access
from infra.kube.api_server.answer import Answer
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError
from infra.kube.record import ALL
from infra.kube.workload import Workload
from tests.cli.records import RECORD
from tests.cli.status.lost_machine import Server

OTHER = replace(
    RECORD,
    owner="99999999-2222-3333-4444-555555555555",
    stack="organization/disttrain/other",
    workload=Workload("jobset.x-k8s.io/v1alpha2", "JobSet", "train-jobset"),
    namespace="team",
)
KIND = "/apis/jobset.x-k8s.io/v1alpha2"
RUN = f"{KIND}/namespaces/team/jobsets/train-jobset"
PODS = "/api/v1/namespaces/team/pods"


class Blind(Server):
    """A stand-in API server with two runs, which refuses one path.

    Args:
        path: the path that is refused.
        status: the status of the refusal.
    """

    def __init__(self, path: str, status: int) -> None:
        super().__init__(1)
        self.path, self.status = path, status
        records = [OTHER.to_object("team"), RECORD.to_object("disttrain")]
        self.answers[ALL] = {"items": records}
        kind = {"name": "jobsets", "kind": "JobSet", "namespaced": True}
        self.answers[KIND] = {"resources": [kind]}
        self.answers[PODS] = {"items": []}
        self.answers[RUN] = {"metadata": {"name": "train-jobset"}, "spec": {}, "status": {}}

    def answer(self, path: str, query: dict[str, str], seconds: float | None) -> Answer:
        if path == self.path:
            return Answer(self.status, "", json.dumps({"message": f"no {path}"}))
        return super().answer(path, query, seconds)


def runs_of(server: Blind, monkeypatch: pytest.MonkeyPatch) -> list[RunStatus]:
    """Return the two runs in a snapshot."""
    monkeypatch.setattr("cli.status.reports.monotonic", lambda: server.seconds)
    api = Api(Access(kubeconfig="{}"), patience_seconds=0)
    api.use(server)
    found = take_snapshot(api, "disttrain")
    assert found.platform.nodes == 2
    return list(found.runs)


def test_run_whose_kind_went_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose kind the cluster no longer knows is shown as gone, with how to make it again.
    Otherwise `status` would fail, and show no run and no node.
    """
    dev, other = runs_of(Blind(KIND, 404), monkeypatch)
    assert (dev.stack, dev.state) == (RECORD.stack, "starting")
    assert other.state == "gone"
    assert other.detail.startswith("JobSet train-jobset went with its kind, which the cluster does")
    assert "jobset.x-k8s.io/v1alpha2" in other.detail
    assert other.detail.endswith("`pulumi refresh` and then `pulumi up` make it again")


@pytest.mark.parametrize("path", [RUN, PODS])
def test_run_that_may_not_be_read_is_unknown(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose workload or pods the user may not read is shown as unknown. It happens to users
    with the role `view` where nobody has added this kind to the role.
    """
    dev, other = runs_of(Blind(path, 403), monkeypatch)
    assert (dev.stack, dev.state) == (RECORD.stack, "starting")
    assert (other.state, other.detail) == ("unknown", f"no {path}")


def test_other_refusals_end_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other refusal ends the snapshot with its reason."""
    with pytest.raises(ApiError, match="no /apis"):
        runs_of(Blind(RUN, 400), monkeypatch)
