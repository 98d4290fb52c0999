"""`./disttrain goodput` on a real cluster: a pod reads the events from the claim and goes."""

from pathlib import Path

import pytest

from cli.goodput.run_events import TASK, fetch_events
from cli.stack_outputs import RunPlace
from infra.kube import names
from infra.kube.errors import TaskError
from tests.kube.lab import Lab, Run, wait_for
from tests.kube.python_image import PYTHON_IMAGE
from tests.trainer.events.stories import Story
from trainer.events.account import account_of_file
from trainer.events.event import Events, event_file


@pytest.fixture
def volume(lab: Lab, claim: Run) -> tuple[RunPlace, Path]:
    """Return a run's place on a claim of its own, and the claim's folder on this machine."""
    run_dir, claim_name = "/data/runs/dev", str(claim.more["claim"])
    where = (lab.access(), claim.namespace, "o-1")
    place = RunPlace(*where, PYTHON_IMAGE, run_dir, "train-singlepod", claim_name)
    return place, Path(str(claim.more["folder"]))


def test_events_come_from_the_volume_by_a_pod_that_goes(
    lab: Lab, volume: tuple[RunPlace, Path]
) -> None:
    place, folder = volume
    with pytest.raises(TaskError, match=r"/data/runs/dev/events/node-00000.jsonl does not exist"):
        fetch_events(lab.api, place)
    told = Story()
    told.starts(1000, 100, 100, 100)
    for _ in range(3000):  # more than one message of the connection can hold
        told.trains(10, 200)
    told.saves(100)
    told.finishes()
    file = event_file(folder / "runs" / "dev", 0)
    file.parent.mkdir(parents=True)
    file.write_bytes(told.content)
    found = fetch_events(lab.api, place)
    assert account_of_file(found) == account_of_file(Events.of(told.content))
    selector = f"{names.TASK_LABEL}={TASK}"
    pods = f"/api/v1/namespaces/{place.namespace}/pods"
    wait_for("the pods to be gone", lambda: lab.api.list(pods, selector) == [])
