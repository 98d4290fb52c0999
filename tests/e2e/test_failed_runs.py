"""A run that has failed stays failed, even if a controller makes its pods once more.

The first test shows why this needs care, by a TrainJob without our program. `make test-engines`
runs this file.
"""

import json
from collections.abc import Iterator

import pytest

from infra.kube.objects import is_true
from infra.workloads import indexed_job, jobset, trainjob
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running, start_controller
from sandbox.stack import PulumiFailedError, Stack
from tests.e2e.asking import people_run
from tests.e2e.conftest import KEPT
from tests.e2e.engines import JOBSET, MPIJOB, PYTORCHJOB, TRAINJOB, VOLCANO, Engine
from tests.e2e.lab import NAMESPACE, Lab, wait_for
from trainer.events.event import Name, event_file

pytestmark = pytest.mark.in_order

NEEDED = ("jobset", "trainer", "training-operator", "mpi-operator", "volcano")
PLAIN = "plain"
STACK = "e2e-failed"
MOST = 1  # how many pods in a row may fail
INDEXED_JOB = Engine(
    kind=indexed_job.KIND,
    pods="train-indexed-{}-".format,
    master="",
    failed_reason="PodFailurePolicy",
    gang=False,
)
# The operator repeats even a fatal error. It does so more often than the run itself allows, but not
# as often as by default, because each pause is twice as long as the one before.
OPTIONS = {MPIJOB.kind.name: {"topologyOptions.launcherRetries": "3"}}


@pytest.fixture(scope="module")
def served(lab: Lab) -> Iterator[Lab]:
    """Yield the lab with the controllers."""
    with running(lab.cluster, [CONTROLLERS[name] for name in NEEDED]):
        yield lab


@pytest.fixture(scope="module")
def stack(served: Lab) -> Iterator[Stack]:
    """Yield a stack that is not up, for runs of a program that fails at each start.

    Its exit code does not say that a retry is of no use.
    """
    settings = {"pods": "2", "processesPerPod": "1", "topology": "jobset"}
    made = served.stack(STACK, "sandbox", settings)
    made.set_all({"preset": None, "datasetFile": None})  # the template sets these, for our trainer
    words = {f"program.command[{place}]": word for place, word in enumerate(("sh", "-c", "exit 3"))}
    limits = {"run.train.max_restarts": "0", "run.train.max_pod_failures": str(MOST)}
    made.set_all({**words, **limits})
    yield made
    made.destroy()


def jobset_of(lab: Lab, name: str, namespace: str) -> tuple[str, int, bool]:
    """Return a JobSet's uid, the number of its restarts, and whether it has failed.

    The uid is empty if there is no such JobSet.
    """
    items = lab.get("jobset", namespace=namespace)["items"]
    item = next((item for item in items if item["metadata"]["name"] == name), None)
    if item is None:
        return "", 0, False
    restarts = item.get("status", {}).get("restarts", 0)
    return item["metadata"]["uid"], restarts, is_true(item, "Failed")


def wait_for_failure(lab: Lab, name: str, namespace: str, before: str = "") -> tuple[str, int]:
    """Return the uid and the restarts of a failed JobSet whose uid is not `before`."""

    def failed() -> tuple[str, int] | None:
        uid, restarts, has_failed = jobset_of(lab, name, namespace)
        return (uid, restarts) if has_failed and uid != before else None

    found = wait_for(f"JobSet {name} to fail", failed, 300)
    assert found is not None
    return found


def test_plain_trainjob_trains_again_when_its_jobset_is_gone(served: Lab) -> None:
    """With Trainer's own limit, a failed TrainJob gets all its restarts once more if its JobSet is
    gone.

    Trainer makes the JobSet anew, for instance after `ttlSecondsAfterFinished` has removed it
    (https://github.com/kubeflow/trainer/issues/3737 and 3779). Here kubectl removes it.
    """
    lab = served
    container = {
        "name": trainjob.NODE,
        "image": KEPT,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "exit 3"],
    }
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {
        "name": trainjob.NODE,
        "template": {
            "metadata": {"labels": trainjob.STEP},
            "spec": {"backoffLimit": 0, "template": pod},
        },
    }
    runtime = {
        "apiVersion": trainjob.API_VERSION,
        "kind": "TrainingRuntime",
        "metadata": {"name": PLAIN},
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "template": {"spec": {"failurePolicy": {"maxRestarts": MOST}, "replicatedJobs": [job]}},
        },
    }
    made = {
        "apiVersion": trainjob.API_VERSION,
        "kind": "TrainJob",
        "metadata": {"name": PLAIN},
        "spec": {
            "runtimeRef": {
                "apiGroup": trainjob.API_VERSION.partition("/")[0],
                "kind": "TrainingRuntime",
                "name": PLAIN,
            }
        },
    }
    given = lab.scratch / "plain.json"
    given.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [runtime, made]}))
    lab.kubectl("create", "-f", str(given), namespace="default")
    try:
        uid, restarts = wait_for_failure(lab, PLAIN, "default")
        assert restarts == MOST
        lab.kubectl("delete", "jobset", PLAIN, namespace="default")
        _, again = wait_for_failure(lab, PLAIN, "default", before=uid)
        assert again == MOST  # the new JobSet's count began at 0
    finally:
        lab.kubectl("delete", "-f", str(given), namespace="default")


def starts(lab: Lab, run_name: str) -> int:
    """Return how often node 0 has started ranks.

    A rank of the other node can fail before node 0 has started its own. Then the round fails and
    its pods count, although node 0 has started nothing in it.
    """
    path = event_file(lab.run_dir(run_name), 0)
    return path.read_text().count(f'"{Name.RANKS_STARTED.value}"')


def living_pods(lab: Lab) -> list[str]:
    """Return the training pods that have not ended.

    A stack whose first `up` has failed has no outputs, so the pods are found by their label.
    """
    alive = "--field-selector=status.phase!=Failed,status.phase!=Succeeded"
    selector = ("-l", "app.kubernetes.io/component=training")
    return lab.kubectl("get", "pod", *selector, alive, "-o", "name").split()


@pytest.mark.parametrize(
    "engine",
    [INDEXED_JOB, JOBSET, TRAINJOB, PYTORCHJOB, MPIJOB, VOLCANO],
    ids=lambda engine: engine.kind.name,
)
def test_run_ends_when_its_own_count_is_spent(served: Lab, stack: Stack, engine: Engine) -> None:
    """A run whose pods fail again and again ends after `run.train.max_pod_failures`, under each
    kind.

    The controller's own limit is higher. `up` fails and names the setting, no pod stays, and status
    says that the run has failed.
    """
    lab, run_name = served, f"{STACK}-{engine.kind.name}"
    options = OPTIONS.get(engine.kind.name, {})
    stack.set_all({"topology": engine.kind.name, "runName": run_name, **options})
    try:
        with pytest.raises(PulumiFailedError) as failure:
            stack.up()
    finally:
        stack.set_all(dict.fromkeys(options))
    said = " ".join(failure.value.args[0].split())
    assert f"{MOST + 1} pods in a row failed without a newer checkpoint" in said, said
    assert "run.train.max_pod_failures" in said

    def has_failed() -> str:
        item = lab.get(engine.typed, engine.workload)
        return engine.condition(item, engine.kind.failed)

    assert wait_for(f"{engine.workload} to have failed", has_failed, 240)
    assert starts(lab, run_name) <= MOST + 1
    wait_for("its pods to end", lambda: not living_pods(lab), 120)
    # The stack has no outputs yet, as no `up` of it has ended well.
    command = f"./disttrain status --stack {stack.name} --json || test $? = 1"
    (run,) = json.loads(people_run(lab, stack, command))["runs"]
    assert (run["state"], "2 pods in a row failed" in run["detail"]) == ("failed", True)


def test_failed_trainjob_stays_failed_without_its_jobset(served: Lab, stack: Stack) -> None:
    """If the JobSet of a failed TrainJob is deleted, Trainer makes it and its pods anew, but no
    rank starts.

    The same holds after Trainer itself was ended and started again.
    """
    lab, run_name, name = served, f"{STACK}-again", TRAINJOB.workload
    stack.set_all({"topology": TRAINJOB.kind.name, "runName": run_name})
    with pytest.raises(PulumiFailedError):
        stack.up()
    uid, _ = wait_for_failure(lab, name, NAMESPACE)
    before = starts(lab, run_name)
    assert before <= MOST + 1
    lab.kubectl("delete", jobset.KIND.kind.lower(), name)
    again, _ = wait_for_failure(lab, name, NAMESPACE, before=uid)
    trainer = CONTROLLERS["trainer"]
    for program in trainer.programs:
        lab.cluster.node(1).end(program.name)
    start_controller(lab.cluster, trainer)
    lab.kubectl("delete", jobset.KIND.kind.lower(), name)
    wait_for_failure(lab, name, NAMESPACE, before=again)
    assert starts(lab, run_name) == before
    assert TRAINJOB.condition(lab.get(TRAINJOB.typed, name), TRAINJOB.kind.failed)
