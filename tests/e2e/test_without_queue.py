"""A run without the setting `queue` on a cluster whose Kueue takes up all Jobs, with Kueue's own
controller: it is refused where it would wait for ever, and trains where there is a default queue.

`make test-engines` runs this file.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from infra.names import QUEUE_LABEL
from sandbox.controllers.controller import running
from sandbox.controllers.kind import Place
from sandbox.controllers.kueue import KUEUE
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import changes, states
from tests.e2e.lab import Lab, run_settings

NAME = "e2e-unqueued"
DEFAULT = "default"  # the name of a LocalQueue that Kueue gives to what names none
RUN = {"topology": "single-pod", **run_settings(NAME, 20)}


def _configuration(place: Place) -> Mapping[str, Any]:
    assert KUEUE.configuration
    return {**KUEUE.configuration(place), "manageJobsWithoutQueueName": True}


HOLDS_ALL = replace(KUEUE, configuration=_configuration)


@pytest.fixture
def platform(lab: Lab) -> Iterator[Stack]:
    """A stack that has a platform and no run."""
    made = lab.stack(NAME, "sandbox", {"topology": "none"})
    made.up()
    yield made
    made.destroy()


def test_run_that_would_wait_for_ever_is_refused(lab: Lab, platform: Stack) -> None:
    with running(lab.cluster, [HOLDS_ALL]):
        platform.set_all(RUN)
        with pytest.raises(PulumiFailedError) as refused:
            platform.preview()
        said = " ".join(refused.value.args[0].split())
        assert "(manageJobsWithoutQueueName), so the run and the Job that prepares the" in said
        assert lab.uids("job") == {}


def test_run_trains_in_the_default_queue_of_its_namespace(lab: Lab, platform: Stack) -> None:
    """Kueue's label in the live objects is no change that the next `up` would take back, and the
    outputs do not say that it is in no queue."""
    with running(lab.cluster, [KUEUE]):
        platform.set("queues.name", DEFAULT)
        platform.up()
        platform.set_all(RUN)
        said = " ".join(platform.up().split())
        assert (
            f"Name it, so that the outputs show the place: pulumi config set queue {DEFAULT}"
            in said
        )
        lab.wait_done(NAME)
        labels = lab.get("job", "train-singlepod")["metadata"]["labels"]
        assert labels[QUEUE_LABEL] == DEFAULT
        assert states(lab, platform)[NAME] == "finished"
        assert "in no queue of Kueue" not in platform.output("queuePlace")
        assert set(changes(platform.up("--expect-no-changes"))) == {"unchanged"}
        platform.refresh()
        platform.preview("--expect-no-changes")
        platform.destroy()
        platform.set_all({"queues.name": None, "topology": "none"})
        platform.up()
