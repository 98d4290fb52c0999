"""What Kueue's preemption does to the restarts of a JobSet, of others and of ours.

A preemption can count towards `maxRestarts`
(https://github.com/kubernetes-sigs/jobset/issues/1117). JobSet's controller suspends the Jobs of a
JobSet one after the other. If a pod fails because the Job of its peer was suspended first, this
counts as a failure. A run of ours is one Job. All its pods are told to end at once, and then they
count for nothing, however they end.

`make test-engines` runs this file.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from infra.kube.objects import is_true
from infra.names import QUEUE_LABEL
from infra.workloads.jobset import API_VERSION
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.stack import Stack
from tests.e2e.asking import people_run, states, training_pods, wait_for_first_checkpoint
from tests.e2e.conftest import KEPT
from tests.e2e.engines import JOBSET
from tests.e2e.lab import ENDLESS, Lab, run_settings, wait_for
from tests.e2e.queue_guest import CPU, QUEUE, URGENT, end_others, start_others

pytestmark = pytest.mark.in_order

NAME = "e2e-preempted-jobset"
TIMES = 2
CPU_OF_EACH = "150m"  # two such pods use up the queue's quota
LIMIT_SECONDS = 180
# The first pod has a file while it lives; the second one fails as soon as the file has gone, as a
# rank does without its peer.
FIRST = "trap 'rm {file}; exit 1' TERM; touch {file}; while :; do sleep 0.05; done"
SECOND = (
    "until test -e {file}; do sleep 0.05; done; while test -e {file}; do sleep 0.05; done; exit 1"
)
BY_INDEX = "if test $JOB_COMPLETION_INDEX = 0; then {first}; else {second}; fi"
HOLD = "hold-the-second-job"


@pytest.fixture(scope="module")
def kueue(lab: Lab) -> Iterator[Lab]:
    """Yield the lab with the controllers of JobSet and Kueue."""
    with running(lab.cluster, [CONTROLLERS[name] for name in ("jobset", "kueue")]):
        yield lab


@pytest.fixture(scope="module")
def stack(kueue: Lab) -> Iterator[Stack]:
    """Yield a stack with a queue that has room for one run, and a run in it without any restart."""
    queue = {"queues.name": QUEUE, "queues.quota.cpu": CPU, f"queues.priorities.{URGENT}": "1000"}
    shape = {"topology": "jobset", "queue": QUEUE, "pods": "3", "processesPerPod": "1"}
    limits = {"run.train.max_restarts": "0", "run.train.max_pod_failures": "0"}
    settings = {**run_settings(NAME, ENDLESS), **queue, **shape, **limits}
    made = kueue.stack(NAME, "sandbox", settings)
    yield made
    made.destroy()


def test_preempted_run_spends_none_of_its_restarts(kueue: Lab, stack: Stack) -> None:
    """A run that may not be restarted even once comes back each time after it was preempted."""
    lab = kueue
    stack.up()
    wait_for_first_checkpoint(lab, NAME)
    for _ in range(TIMES):
        start_others(lab, "urgent", URGENT)
        wait_for("its pods to go", lambda: not training_pods(lab, stack), LIMIT_SECONDS)
        saved = max(lab.losses(NAME))
        end_others(lab, "urgent")
        wait_for("further steps", lambda saved=saved: max(lab.losses(NAME)) > saved, LIMIT_SECONDS)
    assert spent(lab, JOBSET.workload) == 0
    wait_for("the training", lambda: states(lab, stack) == {NAME: "training"}, LIMIT_SECONDS)
    people_run(lab, stack, f"./disttrain stop --stack {stack.name}")  # so that its quota is free


def spent(lab: Lab, name: str) -> int:
    """Return how many restarts JobSet's controller has counted."""
    return lab.get("jobset", name)["status"].get("restartsCountTowardsMax", 0)


def has_failed(lab: Lab, name: str) -> bool:
    return is_true(lab.get("jobset", name), "Failed")


@contextmanager
def plain_jobset(lab: Lab, stack: Stack, name: str, scripts: dict[str, str]) -> Iterator[None]:
    """Make a JobSet in the queue for the block, with a Job for each script and without restarts.

    The block begins when its two pods run.
    """
    pods = 2 // len(scripts)
    folder = lab.cluster.data_root

    def job(script: str) -> dict[str, Any]:
        file = f"/data/{name}"
        told = script.format(file=file)
        container = {
            "name": "main",
            "image": KEPT,
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", told],
            "resources": {"requests": {"cpu": CPU_OF_EACH}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": stack.output("claim")}}
        pod = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
        size = {"completionMode": "Indexed", "completions": pods, "parallelism": pods}
        return {"spec": {**size, "backoffLimit": 0, "template": {"spec": pod}}}

    item = {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "metadata": {"name": name, "labels": {QUEUE_LABEL: QUEUE}},
        "spec": {
            "failurePolicy": {"maxRestarts": 0},
            "replicatedJobs": [
                {"name": each, "replicas": 1, "template": job(script)}
                for each, script in scripts.items()
            ],
        },
    }
    given = lab.scratch / f"{name}.json"
    given.write_text(json.dumps(item))
    lab.kubectl("create", "-f", str(given))
    try:
        wait_for("its pods to run", lambda: running_pods(lab, name) == 2, LIMIT_SECONDS)
        wait_for("its first pod", (folder / name).exists, LIMIT_SECONDS)
        yield
    finally:
        lab.kubectl("delete", "-f", str(given))
        (folder / name).unlink(missing_ok=True)


def running_pods(lab: Lab, name: str) -> int:
    selector = f"jobset.sigs.k8s.io/jobset-name={name}"
    phase = "--field-selector=status.phase=Running"
    return len(lab.kubectl("get", "pod", "-l", selector, phase, "-o", "name").split())


@contextmanager
def held_back(lab: Lab, job: str) -> Iterator[None]:
    """Let the API server refuse to suspend this Job during the block.

    To JobSet's controller this is as if it had not come to the second Job yet.
    """
    group = "admissionregistration.k8s.io"
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"]}
    policy = {
        "apiVersion": f"{group}/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": HOLD},
        "spec": {
            "matchConstraints": {"resourceRules": [{**rule, "operations": ["UPDATE"]}]},
            "matchConditions": [
                {"name": "this-one", "expression": f"object.metadata.name=='{job}'"}
            ],
            "validations": [{"expression": "object.spec.suspend == oldObject.spec.suspend"}],
        },
    }
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": HOLD},
        "spec": {"policyName": HOLD, "validationActions": ["Deny"]},
    }
    given = lab.scratch / f"{HOLD}.json"
    given.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [policy, binding]}))
    lab.kubectl("create", "-f", str(given))

    def is_in_force() -> bool:
        suspend = '-p={"spec":{"suspend":true}}'
        try:
            lab.kubectl("patch", "job", job, "--dry-run=server", suspend)
        except AssertionError as reason:
            return HOLD in str(reason)
        return False

    try:
        wait_for("the policy", is_in_force, LIMIT_SECONDS)
        yield
    finally:
        lab.kubectl("delete", "-f", str(given))


def test_preemption_fails_a_jobset_of_several_jobs(kueue: Lab, stack: Stack) -> None:
    """A JobSet of two Jobs that is only preempted fails for good (jobset#1117)."""
    lab, name = kueue, "two-jobs"
    with plain_jobset(lab, stack, name, {"first": FIRST, "second": SECOND}):
        with held_back(lab, f"{name}-second-0"):
            start_others(lab, "urgent", URGENT)
            wait_for("its end", lambda: has_failed(lab, name), LIMIT_SECONDS)
        end_others(lab, "urgent")
        conditions = lab.get("jobset", name)["status"]["conditions"]
        assert [each["reason"] for each in conditions if each["type"] == "Failed"] == [
            "ReachedMaxRestarts"
        ]


def test_preempted_jobset_of_one_job_comes_back(kueue: Lab, stack: Stack) -> None:
    """The same two pods in one Job come back after a preemption, and no restart is counted.

    The second pod fails here too.
    """
    lab, name = kueue, "one-job"
    script = BY_INDEX.format(first=FIRST, second=SECOND)
    with plain_jobset(lab, stack, name, {"both": script}):
        file = lab.cluster.data_root / name
        start_others(lab, "urgent", URGENT)
        wait_for("its pods to end", lambda: not file.exists() and not running_pods(lab, name), 120)
        end_others(lab, "urgent")
        wait_for("its pods to run again", lambda: running_pods(lab, name) == 2, LIMIT_SECONDS)
        assert (spent(lab, name), has_failed(lab, name)) == (0, False)
