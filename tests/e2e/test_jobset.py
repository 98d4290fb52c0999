"""A run as a JobSet, with JobSet's own controller: what every kind of workload has to keep.

A run of multi-pod comes first on the same platform, so that the weights of both can be compared.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.status.look import look
from infra.kube.access import Access
from infra.kube.api import Api
from infra.labels import OWNER_LABEL
from infra.workloads.jobset import KIND
from sandbox.controllers.controller import start_controller, stop_controller
from sandbox.controllers.jobset import JOBSET as CONTROLLER
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

STEPS = 1000  # of a run that is killed on its way, and has to come to its end all the same
PODS = 3
REFERENCE, KILLED, STOPPED = "e2e-reference", "e2e-jobset", "e2e-jobset-stopped"
JOBSET, STATEFUL_SET = "train-jobset", "train-multipod"


@pytest.fixture(scope="module")
def controller(lab: Lab) -> Iterator[Lab]:
    start_controller(lab.cluster, CONTROLLER)
    try:
        yield lab
    finally:
        stop_controller(lab.cluster, CONTROLLER)
    hooks = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
    left = lab.uids("customresourcedefinition", "clusterrole", "clusterrolebinding", *hooks)
    assert not [name for name in left if "jobset" in name]


@pytest.fixture(scope="module")
def stack(controller: Lab) -> Iterator[Stack]:
    """A stack whose run of multi-pod is finished."""
    settings = {**run_settings(REFERENCE, STEPS), "pods": str(PODS), "processesPerPod": "1"}
    made = controller.stack("e2e-jobset", "sandbox", {**settings, "topology": "multi-pod"})
    made.up()
    controller.wait_done(REFERENCE)
    yield made
    made.destroy()
    left = controller.uids("jobset", "job", "service", "statefulset", "pod")
    assert not [name for name in left if "train-" in name]


def condition(lab: Lab, type_: str) -> str:
    """Its reason, where the JobSet has it; else empty text."""
    found = lab.get("jobset", JOBSET).get("status", {}).get("conditions", [])
    return next((c["reason"] for c in found if c["type"] == type_ and c["status"] == "True"), "")


def restarts(lab: Lab) -> int:
    return lab.get("jobset", JOBSET)["status"].get("restarts", 0)


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


def test_lost_pod_starts_the_gang_again_and_the_weights_are_the_same(
    controller: Lab, stack: Stack
) -> None:
    """E2 and E4: the bits are those of multi-pod."""
    lab = controller
    stack.set_all({"topology": "jobset", **run_settings(KILLED, STEPS)})
    stack.up()
    assert f"StatefulSet/{STATEFUL_SET}" not in lab.uids("statefulset")
    old = training_pods(lab, stack)
    container = container_of(lab, pod_of(lab, stack, 1))
    wait_for_first_checkpoint(lab, KILLED)
    # At once and without a word to it, as the kernel does for want of memory.
    lab.ctr("tasks", "kill", "--all", "--signal", "SIGKILL", container)
    assert not (lab.run_dir(KILLED) / "done.json").exists(), "killed too late to prove anything"
    lab.wait_done(KILLED)
    assert restarts(lab) == 1
    assert sorted(lab.losses(KILLED)) == list(range(1, STEPS + 1))
    assert weights(lab, KILLED, STEPS) == weights(lab, REFERENCE, STEPS) != {}
    assert wait_for("the end of the JobSet", lambda: condition(lab, "Completed"), 120)
    assert training_pods(lab, stack) == []  # so nothing holds a GPU
    ended = lab.kubectl("get", "pods", "-o", "name").split()
    assert not set(old) & set(ended)  # all of the gang was made anew
    assert states(lab, stack)["e2e-jobset"] == "finished"
    assert set(changes(stack.up("--expect-no-changes"))) == {"unchanged"}
    stack.refresh()
    stack.preview("--expect-no-changes")


def test_stopped_jobset_goes_on_where_it_was_and_hands_over(controller: Lab, stack: Stack) -> None:
    """`stop`, `resume`, and another kind in the same stack, with no step lost or done twice.

    E1 too: every rank is where its index says. This run goes on for as long as it is looked at.
    """
    lab = controller
    stack.set_all({"topology": "jobset", **run_settings(STOPPED, ENDLESS)})
    stack.up()
    for index in range(PODS):
        pod = pod_of(lab, stack, index)
        variables = lab.kubectl("exec", pod, "--", "env").splitlines()
        assert f"JOB_COMPLETION_INDEX={index}" in variables
        assert f"PET_MASTER_ADDR={JOBSET}-nodes-0-0.{JOBSET}" in variables
        said = f"[node {index}] round 1: {PODS} node(s) x 1 rank(s)"
        assert said in lab.kubectl("logs", pod)
    said = people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
    saved = max(lab.losses(STOPPED))
    assert f"it has saved step {saved}." in said
    assert training_pods(lab, stack) == []
    assert states(lab, stack)["e2e-jobset"] == "stopped"
    people_run(lab, stack, f"./disttrain resume --stack {stack.name}")
    wait_for("further steps", lambda: max(lab.losses(STOPPED)) > saved, 120)
    stack.set("topology", "multi-pod")
    output = stack.up()
    assert f"JobSet {JOBSET} of this stack is ended" in output
    assert f"JobSet/{JOBSET}" not in lab.uids("jobset")
    saved = max(lab.losses(STOPPED))
    wait_for("steps of multi-pod", lambda: max(lab.losses(STOPPED)) > saved, 120)


def test_fatal_error_fails_the_jobset_without_a_retry(controller: Lab, stack: Stack) -> None:
    """Weights that are not there stay so, however often the run is tried."""
    lab = controller
    fatal = {"run.train.initial_weights": "/data/no-such-weights"}
    stack.set_all({"topology": "jobset", **run_settings("e2e-fatal", 10), **fatal})
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
