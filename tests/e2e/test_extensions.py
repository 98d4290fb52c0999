"""A new workload, storage, network and delivery kind, all from one file, carry out a run."""

from collections.abc import Iterator

import pytest

from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.conftest import build_image
from tests.e2e.lab import Lab, run_settings

RUN, STEPS = "e2e-toy", 20
TOYS = {
    "topology": "toy-job",
    "topologyOptions.deadlineSeconds": "600",
    "storage": "toy-folder",
    "network": "toy-net",
    "imageDelivery": "toy-present",
    "extensions[0]": "tests.e2e.toy_kinds",
}


@pytest.fixture
def unmade(lab: Lab) -> Stack:
    """Return a stack with these settings of which nothing is made yet."""
    return lab.stack("e2e-toy", "sandbox", {**run_settings(RUN, STEPS), **TOYS})


@pytest.fixture
def stack(lab: Lab, unmade: Stack) -> Iterator[Stack]:
    build_image(lab)  # the toy delivery brings no image, and a destroyed stack may have removed it
    yield unmade
    unmade.destroy()


def test_toy_kinds_of_one_file_train_to_the_end(lab: Lab, stack: Stack) -> None:
    stack.preview()
    stack.up()
    assert lab.wait_done(RUN)["step"] == STEPS
    job = lab.get("job", "train-toy")
    assert job["spec"]["activeDeadlineSeconds"] == 600
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert {"name": "TOY_NETWORK", "value": "1"} in container["env"]
    assert {"name": "DISTTRAIN_TRANSPORTS", "value": "ib,roce"} in container["env"]
    assert container["imagePullPolicy"] == "Never"
    claim = lab.claim()
    assert claim["spec"]["volumeName"].startswith("toy-disttrain-pv-")
    assert claim["status"]["phase"] == "Bound"


def test_options_of_a_toy_kind_are_checked_before_anything_is_made(unmade: Stack) -> None:
    """The preview refuses an unknown option of a new kind, and names the one that was meant and is
    missing.
    """
    unmade.set("topologyOptions.deadlineSeconds", None)
    unmade.set("topologyOptions.deadline", "600")
    with pytest.raises(PulumiFailedError) as failure:
        unmade.preview()
    assert "topologyOptions.deadline:" in str(failure.value)
    assert "Set deadlineSeconds, the only one, or remove it" in str(failure.value)
