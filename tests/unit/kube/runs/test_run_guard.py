"""What `pulumi destroy` of a run says first if its cluster cannot be reached."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, KubeconfigError, TaskError, UnreachableError
from infra.kube.gone_cluster import VARIABLE, WAY_OUT
from infra.kube.job import Job
from infra.kube.runs import run_guard
from tests.unit.kube.server import ApiServer, api_of

KUBECONFIG = {
    "current-context": "new",
    "contexts": [{"name": "new", "context": {"cluster": "a", "user": "a"}}],
    "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:9"}}],
    "users": [{"name": "a", "user": {"token": "t"}}],
}


class Server(ApiServer):
    """A stand-in that gives one answer, which may be an error, to each request."""

    def __init__(self, answer: object) -> None:
        self.given = answer

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        assert method == "GET"
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


def job(access: Access) -> Job:
    return Job(access, "ml", "me", "run", {"platform_stack": "dev"})


@pytest.fixture
def renamed(tmp_path: Path) -> Access:
    """Return the way to a cluster whose context has another name since the last `up`."""
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(KUBECONFIG))
    return Access(kubeconfig_path=str(path), context="old")


def test_renamed_context_is_named_with_the_way_on(
    renamed: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the contexts that there are, and the stack whose `up` notes the new one.
    Only for a cluster that is gone for good it names the variable, which would leave the objects of
    the run in the cluster.
    """
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(TaskError) as refused:
        run_guard.delete(job(renamed), Api(renamed, 0.0))
    said = str(refused.value)
    assert "has no context 'old'; it has new. If it was renamed, give it that name again" in said
    assert "Nothing was deleted. A new name or place is noted by `pulumi up --stack dev`" in said
    assert said.endswith(WAY_OUT)


def test_silent_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    api = api_of(Server(UnreachableError("nobody listens")))
    with pytest.raises(
        TaskError, match=r"does not answer \(nobody listens\)\. Nothing was deleted"
    ):
        run_guard.delete(job(api.access), api)


@pytest.mark.parametrize("answer", [None, {"metadata": {}}, ApiError(403, "you may not")])
def test_cluster_that_answers_lets_destroy_go_on(answer: object) -> None:
    """An answer is enough, also without a record of the run or the right to read it."""
    api = api_of(Server(answer))
    run_guard.delete(job(api.access), api)


def test_cluster_that_was_given_up_is_left_to_the_task(
    renamed: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the variable, `infra.kube` ends the task well, as it does with each other task."""
    monkeypatch.setenv(VARIABLE, "true")
    with pytest.raises(KubeconfigError):
        run_guard.delete(job(renamed), Api(renamed, 0.0))
    api = api_of(Server(UnreachableError("nobody listens")))
    with pytest.raises(UnreachableError):
        run_guard.delete(job(api.access), api)
