"""Kueue is set up to hold back everything that is in none of its queues, with its own controller.

If a stack's run, or the Job that prepares its data, would wait for ever, the stack is refused. Each
solution that the message names is tried here. `make test-engines` runs this file.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from infra.names import QUEUE_LABEL
from sandbox.controllers.controller import running
from sandbox.controllers.kind import Controller, Place
from sandbox.controllers.kueue import KUEUE
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes, people_run, states, training_pods
from tests.e2e.lab import ENDLESS, NAMESPACE, Lab, run_settings, wait_for

NAME = "e2e-unqueued"
DEFAULT = "default"  # Kueue puts what is in no queue into a LocalQueue of this name
QUEUE = "gpus"
RUN = {"topology": "single-pod", **run_settings(NAME, 20)}
LEFT_OUT = {
    "matchExpressions": [
        {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": [NAMESPACE, "kube-system", "kueue-system"],
        }
    ]
}


def configured(**fields: Any) -> Controller:
    """Return Kueue with these fields in its configuration."""
    usual = KUEUE.configuration
    assert usual is not None

    def configuration(place: Place) -> Mapping[str, Any]:
        return {**usual(place), **fields}

    return replace(KUEUE, configuration=configuration)


HOLDS_ALL = configured(manageJobsWithoutQueueName=True)
HOLDS_PODS = configured(integrations={"frameworks": ["batch/job", "pod", "statefulset"]})
LEAVES_OUT = configured(manageJobsWithoutQueueName=True, managedJobsNamespaceSelector=LEFT_OUT)


@pytest.fixture
def platform(lab: Lab) -> Iterator[Stack]:
    """Yield a stack that has a platform and no run."""
    made = lab.stack(NAME, "sandbox", {"topology": "none"})
    made.up()
    yield made
    made.destroy()


def said(output: object) -> str:
    return " ".join(str(output).split())


def set_program(platform: Stack) -> None:
    """Set a program of the user's own, which has no data set to prepare."""
    words = ("sh", "-c", "sleep 1000")
    command = {f"program.command[{place}]": word for place, word in enumerate(words)}
    ours = {"preset": None, "datasetFile": None}  # the template sets these, for our trainer
    run = {"topology": "single-pod", "runName": f"{NAME}-program"}
    platform.set_all({**ours, **run, **command})


def test_data_set_that_would_wait_for_ever_is_refused(lab: Lab, platform: Stack) -> None:
    """The preview refuses a stack whose data set's Job would be in no queue, and names a remedy."""
    with running(lab.cluster, [HOLDS_ALL]):
        platform.set_all(RUN)
        with pytest.raises(PulumiFailedError) as refused:
            platform.preview()
        assert "the Job that prepares the data set is in no queue, and Kueue" in said(refused.value)
        assert "make a LocalQueue with the name default" in said(refused.value)
        assert lab.uids("job") == {}


def test_run_trains_in_the_default_queue_of_its_namespace(lab: Lab, platform: Stack) -> None:
    """With a LocalQueue `default` in the namespace, Kueue puts the run and the data set's Job into
    it.

    Kueue writes its label into the live objects. The next `up` does not take this for a change, and
    the outputs do not say that the run is in no queue.
    """
    with running(lab.cluster, [HOLDS_ALL]):
        platform.set("queues.name", DEFAULT)
        platform.up()
        platform.set_all(RUN)
        assert f"name the queue: pulumi config set queue {DEFAULT}" in said(platform.up())
        lab.wait_done(NAME)
        labels = lab.get("job", "train-singlepod")["metadata"]["labels"]
        assert labels[QUEUE_LABEL] == DEFAULT
        assert states(lab, platform)[NAME] == "finished"
        assert "in no queue of Kueue" not in platform.output("queuePlace")
        assert set(changes(platform.up("--expect-no-changes"))) == {"unchanged"}
        platform.refresh()
        platform.preview("--expect-no-changes")
        platform.set_all({"queues.name": None, "topology": "none"})
        platform.up()


def test_pods_in_the_default_queue_stop_and_resume(lab: Lab, platform: Stack) -> None:
    """With a LocalQueue `default`, Kueue also holds back the pods of a StatefulSet that names none.

    Such a run can be stopped and resumed. While its queue lets nothing start, status says so. (Of a
    stopped run in a stopped queue, Kueue 0.19.2 refuses the resume until the queue is open again.)
    """
    with running(lab.cluster, [HOLDS_PODS]):
        platform.set("queues.name", DEFAULT)
        platform.up()
        platform.set_all({**RUN, "topology": "multi-pod", "pods": "2"})
        platform.set("run.train.max_steps", str(ENDLESS))
        platform.up()
        found = lab.get("statefulset", "train-multipod")
        assert found["metadata"]["labels"][QUEUE_LABEL] == DEFAULT
        assert all(
            "kueue.x-k8s.io/managed" in lab.get(pod)["metadata"]["labels"]
            for pod in training_pods(lab, platform)
        )
        people_run(lab, platform, f"./disttrain stop --stack {NAME}")
        assert states(lab, platform) == {NAME: "stopped"}
        assert training_pods(lab, platform) == []
        people_run(lab, platform, f"./disttrain resume --stack {NAME}")
        wait_for("the pods", lambda: states(lab, platform) == {NAME: "training"}, 300)
        hold(lab, "HoldAndDrain")
        command = f"./disttrain status --stack {NAME}"
        wait_for(
            "Kueue's reason", lambda: "in queue default" in people_run(lab, platform, command), 60
        )
        hold(lab, "None")
        wait_for("new pods", lambda: states(lab, platform) == {NAME: "training"}, 300)
        platform.set_all({"queues.name": None, "topology": "none", "pods": None})
        platform.up()


def hold(lab: Lab, policy: str) -> None:
    """Let the queue put everything back (`HoldAndDrain`), or start everything again (`None`)."""
    patch = json.dumps({"spec": {"stopPolicy": policy}})
    lab.kubectl("patch", "localqueue", DEFAULT, "--type=merge", f"--patch={patch}")


def test_run_without_data_trains_once_it_names_a_queue(lab: Lab, platform: Stack) -> None:
    """A run of a program is refused while it is in no queue, and trains when it names one."""
    with running(lab.cluster, [HOLDS_ALL]):
        platform.set("queues.name", QUEUE)
        platform.up()
        set_program(platform)
        with pytest.raises(PulumiFailedError) as refused:
            platform.preview()
        assert "the run is in no queue, and Kueue" in said(refused.value)
        platform.set("queue", QUEUE)
        platform.up()
        assert f"has its place in queue {QUEUE}" in platform.output("queuePlace")
        platform.set_all({"queue": None, "queues.name": None, "topology": "none"})
        platform.up()


def test_namespace_that_is_left_out_trains_without_a_queue_alone(lab: Lab, platform: Stack) -> None:
    """In a namespace that Kueue leaves out, a run trains only if it names no queue.

    Kueue suspends a run that names a queue there, and never looks at it again. `up` says so.
    """
    with running(lab.cluster, [LEAVES_OUT]):
        platform.set_all({**RUN, "run.train.max_steps": str(ENDLESS)})
        platform.up()
        wait_for("the training", lambda: states(lab, platform)[NAME] == "training", 60)
        platform.set_all({"queues.name": QUEUE, "topology": "none"})
        platform.up()
        platform.set_all({"topology": "single-pod", "queue": QUEUE})
        assert "is set up to leave this namespace out (managedJobs" in said(platform.up())
        wait_for("the state", lambda: states(lab, platform)[NAME] == "queued", 60)
        platform.set_all({"queue": None, "queues.name": None, "topology": "none"})
        platform.up()
