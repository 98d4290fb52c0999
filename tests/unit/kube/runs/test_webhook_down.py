"""What `pulumi preview` and `up` report while a webhook of the cluster is down.

The API server is a stand-in here, which answers as a real one does for such a webhook.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from infra import cluster_check
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings
from infra.kube.api_server.rights import Need
from infra.kube.errors import ApiError
from infra.kube.runs.pods_findings import RunPods
from infra.kube.volumes.storage_findings import StorageNeeds
from infra.kube.workload import Workload
from tests.unit.kube.server import ApiServer, Json, api_of

WORDS = 'Internal error occurred: failed calling webhook "mjob.kb.io": connection refused'
SUSPEND = {"spec": {"suspend": True}}
VOLUME = StorageNeeds(
    namespace="ml", claim="c", is_there=False, class_name="", access_mode="", size="", pods=1
)
POD: Json = {"metadata": {}, "spec": {"containers": [{"name": "t", "resources": {}}]}}
RUN = RunPods(
    "ml", POD, 1, grows=False, itself=Workload("batch/v1", "Job", "train"), suspend=SUSPEND
)


class Down(ApiServer):
    """A cluster with Kueue, whose webhook for some objects does not answer.

    Args:
        refused: the ends of the paths of these objects.
        job: the run's workload; None: it does not exist.
        may: whether these credentials may do everything.
        words: the message of the API server.
    """

    def __init__(
        self,
        *refused: str,
        job: Json | None = None,
        may: bool = True,
        words: str = WORDS,
    ) -> None:
        self.refused, self.job, self.may, self.words = refused, job, may, words

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        if path.endswith("selfsubjectrulesreviews"):
            return {"status": {}}
        if path.endswith("selfsubjectaccessreviews"):
            return {"status": {"allowed": self.may}}
        if method == "POST":
            assert query == {"dryRun": "All"}
            if path.endswith(self.refused):
                raise ApiError(500, self.words)
            return body
        node = {"metadata": {"name": "n"}, "status": {"allocatable": {"pods": "9"}}, "spec": {}}
        there: dict[str, Json | None] = {
            "/apis/kueue.x-k8s.io": {"versions": [{"version": "v1beta2"}]},
            "/apis/batch/v1": {"resources": [{"name": "jobs", "kind": "Job", "namespaced": True}]},
            "/apis/batch/v1/namespaces/ml/jobs/train": self.job,
            "/api/v1/namespaces/ml": {"metadata": {"name": "ml", "uid": "1"}},
            "/api/v1/nodes": {"items": [node]},
            "/api/v1/namespaces/ml/configmaps": {"items": []},
            "/api/v1/namespaces/ml/resourcequotas": {"items": []},
        }
        return there.get(path)


def found_in(server: Down, monkeypatch: pytest.MonkeyPatch, run: RunPods = RUN) -> Findings:
    """Return the findings of the preview."""

    @contextmanager
    def quick(access: Access, seconds: float) -> Iterator[Api]:
        del access, seconds
        yield api_of(server)

    monkeypatch.setattr(cluster_check, "read_only_api", quick)
    return cluster_check.ask(Access(kubeconfig="{}"), VOLUME, [Need("", "pods", "list", "ml")], run)


def test_problems_before_it_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the cluster does not answer a question of the preview, the problems that were found before
    are still reported. A note says that the cluster was not asked everything, and why.
    """
    broken = "Internal error occurred: etcdserver: request timed out"
    found = found_in(Down("/jobs", may=False, words=broken), monkeypatch)
    (problem,) = found.problems
    assert problem.startswith("kubeconfig: its user may not do all that this stack needs")
    assert found.notes[-1].startswith("the cluster was not asked everything beforehand: 500 ")
    assert broken in found.notes[-1]


@pytest.mark.parametrize(("path", "what"), [("/jobs", "Jobs"), ("/pods", "pods")])
@pytest.mark.parametrize("job", [None, SUSPEND])
def test_new_run_is_refused_while_it_is(
    path: str, what: str, job: Json | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has to be made or resumed is refused while the webhook is down. Otherwise another
    run would be suspended for it, and then the run itself would be refused.
    """
    item = {"metadata": {"uid": "1"}, **job} if job else None
    (problem,) = found_in(Down(path, job=item), monkeypatch).problems
    assert problem.startswith(f"the cluster refuses at the moment new {what} in namespace ml: 500")
    assert WORDS in problem
    assert problem.endswith("wait until it answers, and then run pulumi up")


def test_run_that_stands_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that trains goes on while the webhook is down, and notes say so. A webhook that is down
    for a moment must not make its `up` fail.
    """
    trains = {"metadata": {"uid": "1"}, "spec": {"suspend": False}}
    found = found_in(Down("/jobs", "/pods", job=trains), monkeypatch)
    assert found.problems == []
    said = [note for note in found.notes if WORDS in note and "The run goes on" in note]
    assert len(said) == 2  # one for the Jobs, one for the pods


def test_stack_that_installs_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stack that installs controllers goes on, because its `up` may bring the webhook's
    controller back.
    """
    run = replace(RUN, groups_come=("kueue.x-k8s.io",))
    found = found_in(Down("/jobs"), monkeypatch, run)
    assert found.problems == []
    assert WORDS in found.notes[-1]


def test_cluster_whose_webhooks_answer_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found in a cluster whose webhooks answer."""
    assert found_in(Down("/none"), monkeypatch) == Findings()
