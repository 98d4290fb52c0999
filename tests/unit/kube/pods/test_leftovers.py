"""What `pulumi destroy` waits for before the rest of a stack goes, and what it says of machines
that do not answer.

The API server and the time are stand-ins; tests/kube/test_lost_machine.py asks a real one.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from infra.kube import waiting
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, TaskError
from infra.kube.job import Job
from infra.kube.names import COMPONENT_LABEL, OWNER_LABEL, TASK_LABEL, TRAINING
from infra.kube.pods import leftovers
from infra.kube.pods.leftovers import LIMIT_SECONDS, LOST_SECONDS
from tests.unit.stacks import deploy

Json = dict[str, Any]
Pods = list[Json]
BEGIN = datetime(2026, 11, 26, 1, 0, tzinfo=UTC)
PODS = "/api/v1/namespaces/disttrain/pods"
DEPLOYMENT = "/apis/apps/v1/namespaces/disttrain/deployments/disttrain-lost-nodes"
OFF, WELL = "off", "well"


@dataclass
class Cluster:
    """A stand-in for an API server whose time passes only while somebody waits. The machine `off`
    does not answer.
    """

    pods: Pods = field(default_factory=list[Json])
    gives_up_after: float | None = None
    """After this many seconds the setting `lostNodes` deletes the pods on the node `off`."""
    shows_deployments: bool = True
    seconds: float = 0.0

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def list(self, path: str, selector: str = "") -> Pods:
        assert path == PODS
        wanted = [word.split("=") for word in selector.split(",")]
        return [pod for pod in self._there() if _has(pod["metadata"]["labels"], wanted)]

    def _there(self) -> Pods:
        """The pods that still exist. A pod that was asked to end does so in time, unless its
        machine is off.
        """
        if self.gives_up_after is not None and self.seconds > self.gives_up_after:
            self.pods = [pod for pod in self.pods if pod["spec"]["nodeName"] != OFF]
        return [
            pod for pod in self.pods if pod["spec"]["nodeName"] == OFF or not _is_over(self, pod)
        ]

    def get(self, path: str) -> Json | None:
        if path == DEPLOYMENT:
            if not self.shows_deployments:
                raise ApiError(403, "no")
            return {} if self.gives_up_after is not None else None
        status = "Unknown" if path.endswith(f"/{OFF}") else "True"
        ready = {"type": "Ready", "status": status, "lastTransitionTime": "2026-11-26T00:53:09Z"}
        return {"status": {"conditions": [ready]}}

    def delete(self, path: str, options: Json) -> None:
        (pod,) = (each for each in self.pods if each["metadata"]["name"] == path.split("/")[-1])
        end = self.now() + timedelta(seconds=options["gracePeriodSeconds"])
        pod["metadata"]["deletionTimestamp"] = f"{end:%FT%TZ}"


def _has(labels: Json, wanted: list[list[str]]) -> bool:
    return all(
        words[0] in labels if len(words) == 1 else labels.get(words[0]) == words[1]
        for words in wanted
    )


def _is_over(cluster: Cluster, pod: Json) -> bool:
    end = pod["metadata"].get("deletionTimestamp")
    return bool(end) and datetime.fromisoformat(end) < cluster.now()


def pod(name: str, machine: str, owner: str, ends_after: float | None, **labels: str) -> Json:
    """Return a pod of the training; with `labels`, another pod of this owner."""
    metadata: Json = {
        "name": name,
        "namespace": "disttrain",
        "labels": {OWNER_LABEL: owner, **(labels or {COMPONENT_LABEL: TRAINING})},
    }
    if ends_after is not None:
        metadata["deletionTimestamp"] = f"{BEGIN + timedelta(seconds=ends_after):%FT%TZ}"
    spec = {"nodeName": machine, "terminationGracePeriodSeconds": 30}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def of_command(name: str, machine: str, owner: str = "mine") -> Json:
    """Return the pod of a command, which nobody has asked to end."""
    return pod(name, machine, owner, None, **{TASK_LABEL: "sample"})


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return a cluster without pods, which is also the clock of the waits."""
    made = Cluster()
    for module in (leftovers, waiting):
        monkeypatch.setattr(module, "time", made)
    return made


def destroy(cluster: Cluster, **fields: object) -> str:
    """Return the error of the task; empty: it has ended well."""
    job = Job(Access(kubeconfig="{}"), "disttrain", "mine", "dev", dict(fields))
    try:
        leftovers.delete(job, cast(Api, cluster))
    except TaskError as error:
        return str(error)
    return ""


def test_destroy_of_a_run_names_the_lost_machine(cluster: Cluster) -> None:
    """`pulumi destroy` of a run fails if a pod cannot end because its machine does not answer. The
    error names the machine and the command that removes the pod. Otherwise the pod would be left
    without a word.
    """
    cluster.pods = [pod("train-0", WELL, "mine", 20), pod("train-1", OFF, "mine", 20)]
    said = destroy(cluster)
    assert "train-1 cannot end, because machine off has not answered since 2026-11-26T00" in said
    assert "`kubectl delete pod train-1 --namespace disttrain --grace-period=0 --force`" in said
    assert "claim" not in said, "that is the platform's"
    cluster.pods = []
    assert destroy(cluster) == ""


def test_destroy_of_a_run_waits_for_its_pods_alone(cluster: Cluster) -> None:
    """`pulumi destroy` of a run waits for its own pods only, so that the next `up` finds none of
    them. The runs of other stacks go on.
    """
    cluster.pods = [pod("train", WELL, "mine", 20), pod("theirs", OFF, "theirs", -5)]
    assert destroy(cluster) == ""
    assert [each["metadata"]["name"] for each in cluster.list(PODS, OWNER_LABEL)] == ["theirs"]
    assert cluster.seconds > 20


def test_pods_have_their_whole_time_to_save(cluster: Cluster) -> None:
    """`pulumi destroy` waits for the whole grace period of a pod (`terminationGraceSeconds`), which
    may be many minutes.
    """
    slow = pod("train", WELL, "mine", 3500)
    slow["spec"]["terminationGracePeriodSeconds"] = 3600
    cluster.pods = [slow]
    assert destroy(cluster) == ""
    assert cluster.seconds > 3500


def test_commands_of_others_go_with_the_platform_alone(cluster: Cluster) -> None:
    """`pulumi destroy` of a run deletes only the pods of its own commands, because somebody may
    work with another stack's run. With the platform, the pods of all commands are deleted.
    """
    cluster.pods = [of_command("sample-1", WELL), of_command("sample-2", WELL, "theirs")]
    assert destroy(cluster) == ""
    assert [each["metadata"]["name"] for each in cluster.list(PODS, TASK_LABEL)] == ["sample-2"]
    assert destroy(cluster, everyone=True) == ""
    assert cluster.list(PODS, TASK_LABEL) == []


@pytest.mark.parametrize("everyone", [False, True])
def test_pod_of_a_command_on_a_lost_machine_is_named(cluster: Cluster, everyone: bool) -> None:
    """The error about a command's pod on a machine that does not answer comes early, and names the
    machine and the command that removes the pod.
    """
    cluster.pods = [of_command("sample-1", WELL), of_command("sample-2", OFF)]
    said = destroy(cluster, everyone=everyone)
    assert "sample-2 cannot end, because machine off has not answered since" in said
    assert "kubectl delete pod sample-2 --namespace disttrain" in said
    assert cluster.seconds < LOST_SECONDS / 2


def test_destroy_of_a_platform_waits_for_ending_pods_of_all(cluster: Cluster) -> None:
    """`pulumi destroy` of a platform waits for the ending pods of all stacks, because they keep the
    claim. Such a pod may be left by a run that was destroyed while its machine was off. Pods that
    nobody has asked to end are not waited for.
    """
    cluster.pods = [pod("theirs", OFF, "theirs", -5)]
    said = destroy(cluster, everyone=True)
    assert "the volume's claim cannot be deleted while pods use it. theirs cannot end" in said
    cluster.pods = [pod("ours", OFF, "mine", -5)]
    assert destroy(cluster, everyone=True).count("ours cannot end") == 1
    assert "delete pod ours --namespace" in destroy(cluster, everyone=True)
    cluster.pods = [pod("theirs", WELL, "theirs", None)]
    assert destroy(cluster, everyone=True) == "", "nobody has asked it to end"


@pytest.mark.parametrize("shows_deployments", [True, False])
def test_run_learns_whether_lost_pods_are_given_up(
    cluster: Cluster, shows_deployments: bool
) -> None:
    """`pulumi destroy` of a run waits longer if the platform gives up pods on lost machines, which
    the program's Deployment shows. If the Deployment may not be read, it waits longer, too.
    """
    cluster.shows_deployments = shows_deployments
    cluster.pods = [pod("train", OFF, "mine", -5)]
    cluster.gives_up_after = 60
    assert destroy(cluster) == ""
    assert cluster.seconds > 60


@pytest.mark.parametrize("fields", [{}, {"everyone": True, "lost_nodes_are_replaced": True}])
def test_pods_that_nobody_gives_up_are_named_in_the_end(
    cluster: Cluster, fields: dict[str, bool]
) -> None:
    """Pods that are not given up in time are named in the error. The program that gives them up may
    itself have no machine left.
    """
    cluster.pods = [pod("train", OFF, "mine", -5)]
    cluster.gives_up_after = 86400
    said = destroy(cluster, **fields)
    assert "train cannot end, because machine off has not answered" in said
    assert cluster.seconds >= LOST_SECONDS


@pytest.mark.parametrize("stack", ["sandbox", "sandbox-multipod"])
def test_engine_waits_as_long_as_pods_may_save(tmp_path: Path, stack: str) -> None:
    """The engine gives the task more time than pods may take to save. Otherwise it would end the
    task after some minutes.
    """
    settings = {"terminationGraceSeconds": 7200}
    made = deploy(stack, tmp_path, settings).one("task-pods-leftovers")
    longest = made.request.customTimeouts.delete
    assert float(longest.removesuffix("s")) > 7200 + LOST_SECONDS + LIMIT_SECONDS
