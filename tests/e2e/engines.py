"""The kinds of workload that a controller of the cluster carries out, and in what they differ."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.kube.workload import Workload, true_condition
from infra.workloads import jobset, lws, mpijob, pytorchjob, trainjob, volcano
from infra.workloads.kind import WorkloadKind


@dataclass(frozen=True)
class Engine:
    """One kind.

    Args:
        kind: its definition in the program.
        pods: the name of the pod of an index, or its begin, which ends with `-`.
        master: where every pod finds node 0.
        failed_reason: that of the condition of a workload that was given up for good; for a kind
            without such conditions its phase. Empty: it never is, and never ends; its pods stay.
        gang: whether all pods are made anew when one is lost; otherwise that one alone.
        killed: the indexes of the pods that are killed, each of which comes back in its own way.
        no_retry: settings with which a fatal error fails the workload at once, if it needs any.
        heard: indexes of the pods whose fatal error the controller hears of. The others may be
            started again until it ends them.
        index_variable: by which a pod is told its index.
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
        """The kind, as kubectl takes it."""
        return Workload(self.kind.api_version, self.kind.kind, self.workload).typed

    def is_pod(self, name: str, index: int) -> bool:
        """Whether a pod of this name has this index."""
        given = self.pods(index)
        return name.startswith(given) if given.endswith("-") else name == given

    def condition(self, item: dict[str, Any], types: tuple[str, ...]) -> str:
        """The first of these conditions that is true, with its reason; else empty text."""
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
