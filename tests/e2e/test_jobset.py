"""A run as a JobSet, with JobSet's own controller: what every kind of workload has to keep."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.status.look import look
from infra.kube.access import Access
from infra.kube.api import Api
from infra.labels import OWNER_LABEL
from infra.workloads.jobset import KIND
from sandbox.follow import train_points
from sandbox.jobset import start_jobset, stop_jobset
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import (
    changes,
    people_run,
    states,
    training_pods,
    wait_for_first_checkpoint,
    weights,
)
from tests.e2e.lab import ENDLESS, NAMESPACE, Lab, run_settings, wait_for
from tests.unit.stacks import deploy

PODS = 3
KILLED, REFERENCE = "e2e-jobset-killed", "e2e-jobset-reference"
ENDED, STOPPED, FATAL = "e2e-jobset-ended", "e2e-jobset-stopped", "e2e-jobset-fatal"
INTERVAL = 100  # steps from one checkpoint to the next
ALL_CHECKPOINTS = {"run.checkpoint.interval": str(INTERVAL), "run.checkpoint.keep_last": "100000"}
JOBSET, STATEFUL_SET = "train-jobset", "train-multipod"


@pytest.fixture(scope="module")
def controller(lab: Lab) -> Iterator[Lab]:
    start_jobset(lab.cluster)
    try:
        yield lab
    finally:
        stop_jobset(lab.cluster)
    hooks = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
    left = lab.uids("customresourcedefinition", "clusterrole", "clusterrolebinding", *hooks)
    assert not [name for name in left if "jobset" in name]


@pytest.fixture(scope="module")
def stack(controller: Lab) -> Iterator[Stack]:
    """A stack of which each test makes the run that it needs."""
    pods = {"topology": "jobset", "pods": str(PODS), "processesPerPod": "1"}
    made = controller.stack("e2e-jobset", "sandbox", pods)
    try:
        yield made
    finally:
        made.destroy()
    kinds = ("jobset", "job", "service", "statefulset", "pod")
    wait_for(
        "the run's objects to go",
        lambda: not [name for name in controller.uids(*kinds) if "train-" in name],
        120,
    )


def condition(lab: Lab, type_: str) -> str:
    """Its reason, where the JobSet has it; else empty text."""
    found = lab.get("jobset", JOBSET).get("status", {}).get("conditions", [])
    return next((c["reason"] for c in found if c["type"] == type_ and c["status"] == "True"), "")


def restarts(lab: Lab) -> int:
    return lab.get("jobset", JOBSET).get("status", {}).get("restarts", 0)


def pod_of(lab: Lab, stack: Stack, index: int) -> str:
    """The living pod of an index, as `pod/<name>`."""
    (pod,) = (pod for pod in training_pods(lab, stack) if f"{JOBSET}-nodes-0-{index}-" in pod)
    return pod


def container_of(lab: Lab, pod: str) -> str:
    """The name that containerd has for the container of a pod."""
    (container,) = json.loads(lab.kubectl("get", pod, "-o", "json"))["status"]["containerStatuses"]
    return container["containerID"].removeprefix("containerd://")


def test_definition_of_the_controller_knows_every_field(controller: Lab, tmp_path: Path) -> None:
    """A field that the definition lacks would be dropped without a word."""
    made = deploy("sandbox-multipod", tmp_path, {"topology": "jobset"}).one("training-job-set")
    fields = {**made.inputs, "apiVersion": KIND.api_version, "kind": KIND.kind}
    owner = made.inputs["metadata"]["labels"][OWNER_LABEL]  # the recording engine's is no label
    manifest = json.loads(json.dumps(fields).replace(json.dumps(owner), json.dumps("owner")))
    manifest["metadata"]["namespace"] = "default"
    given = tmp_path / "jobset.json"
    given.write_text(json.dumps(manifest))
    strictly = ("create", "--dry-run=server", "--validate=strict", "-f", str(given))
    assert f"{JOBSET} created" in controller.kubectl(*strictly, namespace="default")
    manifest["spec"]["failurePolicy"]["maxRestart"] = 1
    given.write_text(json.dumps(manifest))
    with pytest.raises(AssertionError, match=r'unknown field "spec.failurePolicy.maxRestart"'):
        controller.kubectl(*strictly, namespace="default")


def test_crashed_pod_starts_the_gang_again_and_the_weights_are_right(
    controller: Lab, stack: Stack
) -> None:
    """E1, E2 and E4: every rank is where its index says, and the bits are those of multi-pod."""
    lab = controller
    stack.set_all({"topology": "jobset", **run_settings(KILLED, ENDLESS), **ALL_CHECKPOINTS})
    stack.up()
    for index in range(PODS):
        pod = pod_of(lab, stack, index)
        variables = lab.kubectl("exec", pod, "--", "env").splitlines()
        assert f"JOB_COMPLETION_INDEX={index}" in variables
        assert f"PET_MASTER_ADDR={JOBSET}-nodes-0-0.{JOBSET}" in variables
        said = f"[node {index}] round 1: {PODS} node(s) x 1 rank(s)"
        assert said in lab.kubectl("logs", pod)
    wait_for_first_checkpoint(lab, KILLED)
    old = set(training_pods(lab, stack))
    # At once and without a word to it, as the kernel does for want of memory.
    container = container_of(lab, pod_of(lab, stack, 1))
    lab.ctr("tasks", "kill", "--all", "--signal", "SIGKILL", container)
    wait_for("the restart", lambda: restarts(lab) == 1, 300)
    new = wait_for("a new gang", lambda: whole_gang(lab, stack, old), 300)
    assert not new & old
    # The old gang has ended, so what comes after its last step is the new one's.
    step = (max(lab.losses(KILLED)) // INTERVAL + 1) * INTERVAL
    wait_for_checkpoint(lab, KILLED, step)
    assert "continuing after step " in lab.kubectl("logs", pod_of(lab, stack, 0))
    assert restarts(lab) == 1
    stack.set_all({"topology": "multi-pod", **run_settings(REFERENCE, ENDLESS), **ALL_CHECKPOINTS})
    assert f"JobSet {JOBSET} of this stack is ended" in stack.up()
    assert f"JobSet/{JOBSET}" not in lab.uids("jobset")
    losses = lab.losses(KILLED)
    assert sorted(losses) == list(range(1, len(losses) + 1))
    wait_for_checkpoint(lab, REFERENCE, step)
    assert weights(lab, KILLED, step) == weights(lab, REFERENCE, step) != {}


def whole_gang(lab: Lab, stack: Stack, old: set[str]) -> set[str]:
    """The living pods, once they are all there and none of the old ones is."""
    pods = set(training_pods(lab, stack))
    return pods if len(pods) == PODS and not pods & old else set()


def wait_for_checkpoint(lab: Lab, run_name: str, step: int) -> None:
    manifest = lab.run_dir(run_name) / "checkpoints" / f"step-{step:08d}" / "manifest.json"
    wait_for(f"{manifest}", manifest.exists, 600)


def test_finished_jobset_ends_by_itself_and_stays_unchanged(controller: Lab, stack: Stack) -> None:
    lab = controller
    stack.set_all({"topology": "jobset", **run_settings(ENDED, 20)})
    stack.up()
    assert f"StatefulSet/{STATEFUL_SET}" not in lab.uids("statefulset")
    assert wait_for("the end of the JobSet", lambda: condition(lab, "Completed"), 300)
    assert sorted(lab.losses(ENDED)) == list(range(1, 21))
    assert training_pods(lab, stack) == []  # so nothing holds a GPU
    assert states(lab, stack)["e2e-jobset"] == "finished"
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
    stack.refresh()
    stack.preview("--expect-no-changes")


def test_stopped_jobset_goes_on_where_it_was(controller: Lab, stack: Stack) -> None:
    """`stop` and `resume`, with no step lost or done twice."""
    lab = controller
    stack.set_all({"topology": "jobset", **run_settings(STOPPED, ENDLESS)})
    stack.up()
    said = people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
    saved = max(lab.losses(STOPPED))
    assert f"it has saved step {saved}." in said
    assert training_pods(lab, stack) == []
    assert states(lab, stack)["e2e-jobset"] == "stopped"
    people_run(lab, stack, f"./disttrain resume --stack {stack.name}")
    wait_for("further steps", lambda: max(lab.losses(STOPPED)) > saved, 300)
    written = [point["step"] for point in train_points(lab.run_dir(STOPPED))]
    assert written == list(range(1, len(written) + 1))


def test_fatal_error_fails_the_jobset_without_a_retry(controller: Lab, stack: Stack) -> None:
    """Weights that are not there stay so, however often the run is tried."""
    lab = controller
    fatal = {"run.train.initial_weights": "/data/no-such-weights"}
    stack.set_all({"topology": "jobset", **run_settings(FATAL, 10), **fatal})
    try:
        with pytest.raises(PulumiFailedError) as failure:
            stack.up()
    finally:
        stack.set("run.train.initial_weights", None)
    said = failure.value.args[0]
    assert "training failed" in said, said
    assert "/data/no-such-weights" in said, said  # its last words
    reason = wait_for("the end of the JobSet", lambda: condition(lab, "Failed"), 120)
    assert reason == "FailJobSetFailurePolicyAction"
    assert restarts(lab) == 0
    wait_for("the end of its pods", lambda: not training_pods(lab, stack), 120)
    api = Api(Access(kubeconfig_path=str(lab.cluster.kubeconfig)))
    (run,) = look(api, NAMESPACE).runs
    assert (run.state, "/data/no-such-weights" in run.detail) == ("failed", True)
