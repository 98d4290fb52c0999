"""The wait until controllers know the objects that a workload names.

tests/kube tests it with a real API server, and tests/e2e/test_busy_trainer.py with Trainer's own
controller.
"""

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra import task_in_hook
from infra.kube import waiting
from infra.kube.errors import ApiError, TaskError
from infra.kube.job import parse_job
from infra.kube.runs import accepted
from infra.run.workload_hooks import wait_until_accepted
from infra.workloads import WORKLOADS, trainjob
from tests.unit.kube.server import ApiServer, Json, api_of
from tests.unit.stacks import deploy

# The message of the webhook of Kubeflow Trainer 2.3.0.
NOT_SEEN = (
    'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: '
    'spec.runtimeRef: Invalid value: {"name":"train-trainjob"}: '
    'TrainingRuntime.trainer.kubeflow.org "train-trainjob" not found: specified trainingRuntime '
    "must be created before the TrainJob is created"
)
# The message of the webhook of Kueue 0.19.2, which sees every TrainJob if Kueue watches them.
NOT_SEEN_BY_KUEUE = (
    "admission webhook \"vtrainjob.kb.io\" denied the request: runtime 'train-trainjob' not found"
)
COLLECTION = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/disttrain/trainjobs"
MANIFEST: Json = {
    "apiVersion": trainjob.API_VERSION,
    "kind": "TrainJob",
    "metadata": {"name": "train-trainjob"},
    "spec": {},
}


class Server(ApiServer):
    """A stand-in for an API server that refuses the TrainJob with each of these messages, one after
    the other, and then accepts it.
    """

    def __init__(self, *refusals: str) -> None:
        self.refusals, self.tried = list(refusals), list[tuple[Mapping[str, str], Any]]()

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Json | None:
        if method == "GET":
            found = {"name": "trainjobs", "kind": "TrainJob", "namespaced": True}
            return {"resources": [found]}
        assert (method, path) == ("POST", COLLECTION)
        self.tried.append((query, body))
        if self.refusals:
            raise ApiError(403, self.refusals.pop(0))
        return body


def wait(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the task for the TrainJob."""
    monkeypatch.setattr(waiting, "time", server)
    words = [*trainjob.KIND.refused_at_first]
    given = {"kubeconfig": "{}", "owner": "o", "namespace": "disttrain"}
    job = parse_job(json.dumps({**given, "manifest": MANIFEST, "refused_at_first": words}))
    accepted.create(job, api_of(server))


def test_trainjob_is_tried_out_until_its_runtime_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A TrainJob is tried out until its runtime is known to all controllers. Each try is a dry run,
    so it makes nothing.
    """
    server = Server(NOT_SEEN, NOT_SEEN_BY_KUEUE)
    wait(server, monkeypatch)
    assert server.tried == [({"dryRun": "All"}, MANIFEST)] * 3


def test_other_refusal_is_left_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal for another reason ends the wait without an error. The engine makes the object
    next, and shows the refusal.
    """
    server = Server("runtime 'another' not found, and a quota says no")
    wait(server, monkeypatch)
    assert len(server.tried) == 1


def test_runtime_that_is_never_known_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(*[NOT_SEEN] * 1000)
    with pytest.raises(TaskError) as refused:
        wait(server, monkeypatch)
    said = str(refused.value)
    assert said.startswith("waited 60 s for the controllers of TrainJob train-trainjob to know")
    assert "must be created before the TrainJob is created. If this lasts, that controller" in said


@pytest.mark.parametrize("topology", WORKLOADS)
def test_only_a_kind_that_is_refused_at_first_is_tried_out(topology: str, tmp_path: Path) -> None:
    stack = "sandbox" if topology == "single-pod" else "sandbox-multipod"
    deployment = deploy(stack, tmp_path, {"topology": topology})
    hooks = [name for name in deployment.hooks if name.endswith("-accepted")]
    assert bool(hooks) == (topology == "trainjob")
    for resource in deployment.resources:
        before = [*resource.request.hooks.before_create]
        is_tried = [hook for hook in before if hook.endswith("-accepted")]
        is_workload = resource.inputs.get("kind") == WORKLOADS[topology].kind
        assert is_tried == (hooks if is_workload else [])


def test_engine_hands_on_the_object_that_it_will_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook passes the task the manifest that the engine will make, and the access to the
    cluster from the job of the hand-over.
    """
    lines = list[str]()
    program = "import sys; print(sys.argv[1:], flush=True); print(sys.stdin.read(), flush=True)"
    monkeypatch.setattr(task_in_hook, "PROGRAM", ("-c", program))
    monkeypatch.setattr(pulumi.log, "info", lines.append)
    waited = wait_until_accepted(["not seen"], '{"kubeconfig": "k", "owner": "o"}', "[1]")
    with ThreadPoolExecutor(1) as thread:  # keeps the main thread's event loop
        thread.submit(asyncio.run, waited).result()
    words, job = lines
    assert words == "['accepted', 'create']"
    given = {"kubeconfig": "k", "owner": "o"}
    assert json.loads(job) == {**given, "manifest": [1], "refused_at_first": ["not seen"]}
