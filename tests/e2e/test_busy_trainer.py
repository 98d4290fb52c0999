"""Kubeflow Trainer hears of something late, or cannot do what it is told.

The controllers of Trainer and JobSet are the real ones. A policy of the API server is a stand-in
for what would refuse their requests.
"""

import json
from collections.abc import Iterator

import pytest

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.workloads import jobset, trainjob
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import people_run, states
from tests.e2e.lab import NAMESPACE, Lab, wait_for
from tests.refusals import refused

pytestmark = pytest.mark.in_order

STACK = "e2e-busy-trainer"
# The words of Trainer's webhook about a TrainJob whose TrainingRuntime it has not seen yet, and
# that here a policy says them.
NOT_SEEN = "it must be created before the TrainJob is created, says the policy"
NO_JOBSETS = "there are no JobSets today"
LIMIT_SECONDS = 300


@pytest.fixture(scope="module")
def api(lab: Lab) -> Iterator[Api]:
    """Yield the API of a cluster with the controllers."""
    with running(lab.cluster, [CONTROLLERS[name] for name in ("jobset", "trainer")]):
        yield Api(Access(kubeconfig_path=str(lab.cluster.kubeconfig)))


@pytest.fixture(scope="module")
def stack(lab: Lab, api: Api) -> Iterator[Stack]:
    """Yield a platform that is up, and a program for its runs that ends at once."""
    assert api  # needed, because it starts the controllers
    settings = {"pods": "2", "processesPerPod": "1", "topology": "none"}
    made = lab.stack(STACK, "sandbox", settings)
    made.set_all({"preset": None, "datasetFile": None})  # the template sets these, for our trainer
    made.up()
    words = {f"program.command[{place}]": word for place, word in enumerate(("sh", "-c", "exit 0"))}
    made.set_all({"topology": trainjob.KIND.name, **words})
    yield made
    made.destroy()


def trial(api_version: str, kind: str, spec: dict[str, object]) -> dict[str, object]:
    """Return an object that the API server is asked about in place of the refused ones."""
    name = trainjob.KIND.object_name
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def test_trainjob_waits_until_trainer_has_seen_its_runtime(
    lab: Lab, api: Api, stack: Stack
) -> None:
    """`up` waits while Trainer refuses a TrainJob because it has not seen its TrainingRuntime yet.

    The engine makes both objects at the same time, and Trainer may hear of the runtime later.
    Otherwise `up` would fail.
    """
    stack.set("runName", f"{STACK}-late")
    runtime = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": "none"}
    item = trial(trainjob.API_VERSION, "TrainJob", {"runtimeRef": runtime})
    begun, said = stack.up_lines(), list[str]()
    with refused(api, item, NOT_SEEN, NAMESPACE):
        for line in begun:
            said.append(line)
            if "waiting for the controllers of TrainJob" in line:
                break
        else:
            pytest.fail("".join(said))
    assert NOT_SEEN in said[-1]
    said += begun  # reads to the end; raises an error if `up` has failed
    lab.wait_done(f"{STACK}-late")


def test_jobset_that_trainer_cannot_make_is_told_with_the_way_out(
    lab: Lab, api: Api, stack: Stack
) -> None:
    """If Trainer cannot make the JobSet of a run, `up` and status give the reason and a remedy.

    The TrainJob itself says nothing of the reason (trainer#3671). The remedy in status, `stop` and
    then `resume`, works.
    """
    run_name = f"{STACK}-without-jobset"
    stack.set_all({"runName": run_name, "trainingTimeoutSeconds": "30"})
    item = trial(jobset.API_VERSION, "JobSet", {"replicatedJobs": []})
    with refused(api, item, NO_JOBSETS, NAMESPACE):
        with pytest.raises(PulumiFailedError) as failure:
            stack.up()
        said = " ".join(failure.value.args[0].split())
        assert NO_JOBSETS in said, said
        assert "(trainer#3671)" in said
        command = f"./disttrain status --stack {stack.name} --json || test $? = 1"
        (run,) = json.loads(people_run(lab, stack, command))["runs"]
        assert (run["state"], NO_JOBSETS in run["detail"]) == ("waiting", True)
        assert "./disttrain stop and then ./disttrain resume" in run["detail"]
        people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
    assert states(lab, stack)[STACK] == "stopped"
    people_run(lab, stack, f"./disttrain resume --stack {stack.name}")
    lab.wait_done(run_name)
    wait_for("its end", lambda: states(lab, stack)[STACK] == "finished", LIMIT_SECONDS)
