"""Kueue that is set up to let nothing start that is in none of its queues, with its own controller.

A stack is refused where its run, or the Job that prepares its data, would wait for ever, and each
way out that the message names is gone. `make test-engines` runs this file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from infra.names import QUEUE_LABEL
from sandbox.controllers.controller import running
from sandbox.controllers.kind import Controller, Place
from sandbox.controllers.kueue import KUEUE
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes, states
from tests.e2e.lab import ENDLESS, NAMESPACE, Lab, run_settings, wait_for

NAME = "e2e-unqueued"
DEFAULT = "default"  # the name of a LocalQueue into which Kueue puts what is in none
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
    """Kueue with these fields in its configuration."""
    usual = KUEUE.configuration
    assert usual is not None

    def configuration(place: Place) -> Mapping[str, Any]:
        return {**usual(place), **fields}

    return replace(KUEUE, configuration=configuration)


HOLDS_ALL = configured(manageJobsWithoutQueueName=True)
LEAVES_OUT = configured(manageJobsWithoutQueueName=True, managedJobsNamespaceSelector=LEFT_OUT)


@pytest.fixture
def platform(lab: Lab) -> Iterator[Stack]:
    """A stack that has a platform and no run."""
    made = lab.stack(NAME, "sandbox", {"topology": "none"})
    made.up()
    yield made
    made.destroy()


def said(output: object) -> str:
    return " ".join(str(output).split())


def set_program(platform: Stack) -> None:
    """A program of the user's own, which has no data set to prepare."""
    words = ("sh", "-c", "sleep 1000")
    command = {f"program.command[{place}]": word for place, word in enumerate(words)}
    ours = {"preset": None, "datasetFile": None}  # of the template, for our own trainer
    run = {"topology": "single-pod", "runName": f"{NAME}-program"}
    platform.set_all({**ours, **run, **command})


def test_data_set_that_would_wait_for_ever_is_refused(lab: Lab, platform: Stack) -> None:
    with running(lab.cluster, [HOLDS_ALL]):
        platform.set_all(RUN)
        with pytest.raises(PulumiFailedError) as refused:
            platform.preview()
        assert "the Job that prepares the data set is in no queue, and Kueue" in said(refused.value)
        assert "make a LocalQueue with the name default" in said(refused.value)
        assert lab.uids("job") == {}


def test_run_trains_in_the_default_queue_of_its_namespace(lab: Lab, platform: Stack) -> None:
    """Kueue holds back what is in no queue, and puts the data set's Job and the run into this one.

    Kueue's label in the live objects is no change that the next `up` would take back, and the
    outputs do not say that the run is in no queue.
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


def test_run_without_data_trains_once_it_names_a_queue(lab: Lab, platform: Stack) -> None:
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
    """Kueue suspends a run with a queue there and never looks at it; that is said."""
    with running(lab.cluster, [LEAVES_OUT]):
        platform.set_all({**RUN, "run.train.max_steps": str(ENDLESS)})
        platform.up()
        assert states(lab, platform)[NAME] == "training"
        platform.set_all({"queues.name": QUEUE, "topology": "none"})
        platform.up()
        platform.set_all({"topology": "single-pod", "queue": QUEUE})
        assert "is set up to leave this namespace out (managedJobs" in said(platform.up())
        wait_for("the state", lambda: states(lab, platform)[NAME] == "queued", 60)
        platform.set_all({"queue": None, "queues.name": None, "topology": "none"})
        platform.up()
