"""The kinds of workload that need a controller in the cluster, and the differences between them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.kube.workload import Workload, true_condition
from infra.workloads import jobset, lws, mpijob, pytorchjob, trainjob, volcano
from infra.workloads.kind import WorkloadKind


@dataclass(frozen=True)
class Engine:
    """A kind of workload with its controller.

    Args:
        kind: the kind's definition in the program.
        pods: a function that gives the name of the pod of an index, or the beginning of the name,
            which ends with `-`.
        master: the host name at which every pod finds node 0.
        failed_reason: the reason in the condition of a workload that has failed for good; for a
            kind without such conditions, its phase. Empty: the workload never fails or ends, and
            its pods stay.
        gang: whether the controller replaces all pods when one is lost, and not only that one.
        killed: the indexes of the pods that tests kill, because each comes back in another way.
        no_retry: settings with which a fatal error fails the workload at once, if they are needed.
        heard: the indexes of the pods whose fatal error fails the workload. Other pods may be
            started again until the controller ends them.
        index_variable: the environment variable that tells a pod its index.
    """

    kind: WorkloadKind
    pods: Callable[[int], str]
    master: str
    failed_reason: str
    gang: bool
    killed: tuple[int, ...] = (1,)
    no_retry: Mapping[str, str] = field(default_factory=dict[str, str])
    heard: tuple[int, ...] = (0, 1, 2)
    index_variable: str = "JOB_COMPLETION_INDEX"

    @property
    def ends(self) -> bool:
        """Whether the workload finishes or fails, and its pods with it."""
        return bool(self.failed_reason)

    @property
    def workload(self) -> str:
        """Name of the workload object."""
        return self.kind.object_name

    @property
    def typed(self) -> str:
        """The kind and name of the workload in the form that kubectl takes."""
        return Workload(self.kind.api_version, self.kind.kind, self.workload).typed

    def is_pod(self, name: str, index: int) -> bool:
        """Return whether a pod of this name has this index."""
        given = self.pods(index)
        return name.startswith(given) if given.endswith("-") else name == given

    def condition(self, item: dict[str, Any], types: tuple[str, ...]) -> str:
        """Return the first of these conditions that is true, with its reason; empty if none is."""
        return true_condition(item, list(types))


JOBSET = Engine(
    kind=jobset.KIND,
    pods="train-jobset-nodes-0-{}-".format,
    master="train-jobset-nodes-0-0.train-jobset",
    failed_reason="FailJobSetFailurePolicyAction",
    gang=True,
)
TRAINJOB = Engine(
    kind=trainjob.KIND,
    pods="train-trainjob-node-0-{}-".format,
    master="train-trainjob-node-0-0.train-trainjob",
    failed_reason="FailJobSetFailurePolicyAction",
    gang=True,
)
PYTORCHJOB = Engine(
    kind=pytorchjob.KIND,
    pods="train-pytorchjob-worker-{}".format,
    master="train-pytorchjob-first",
    failed_reason="PyTorchJobFailed",
    gang=False,
)
MPIJOB = Engine(
    kind=mpijob.KIND,
    pods=lambda index: f"train-mpijob-worker-{index - 1}" if index else "train-mpijob-launcher-",
    master="train-mpijob-launcher.train-mpijob",
    failed_reason="BackoffLimitExceeded",
    gang=False,
    killed=(0, 1),
    no_retry={"topologyOptions.launcherRetries": "0"},
    heard=(0,),
)
VOLCANO = Engine(
    kind=volcano.KIND,
    pods="train-volcano-node-{}".format,
    master="train-volcano-first",
    failed_reason="Terminated",
    gang=True,
)
LWS = Engine(
    kind=lws.KIND,
    pods=lambda index: f"train-lws-0-{index}" if index else "train-lws-0",
    master="train-lws-0.train-lws",
    failed_reason="",
    gang=False,
    index_variable="LWS_WORKER_INDEX",
)
ENGINES = (JOBSET, TRAINJOB, PYTORCHJOB, MPIJOB, VOLCANO, LWS)
