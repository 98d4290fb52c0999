"""The kinds of workload that a controller of the cluster carries out, and in what they differ."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.workloads import jobset, pytorchjob, trainjob
from infra.workloads.kind import WorkloadKind


@dataclass(frozen=True)
class Engine:
    """One kind.

    Args:
        kind: its definition in the program.
        pods: how its pods' names begin, or are, by index.
        master: where every pod finds node 0.
        described: the resource of the stack that holds the pod template.
        failed_reason: of the condition of a workload that was given up for good.
        gang: whether all pods are made anew when one is lost; otherwise that one alone.
    """

    kind: WorkloadKind
    pods: str
    master: str
    described: str
    failed_reason: str
    gang: bool

    @property
    def workload(self) -> str:
        """Name of the workload object."""
        return self.kind.object_name

    def condition(self, item: Mapping[str, Any], types: tuple[str, ...]) -> str:
        """The reason of the first of these conditions that is true; else empty text."""
        found = item.get("status", {}).get("conditions") or []
        true = (c["reason"] for c in found if c["type"] in types and c["status"] == "True")
        return next(true, "")


JOBSET = Engine(
    kind=jobset.KIND,
    pods="train-jobset-nodes-0-{}-",
    master="train-jobset-nodes-0-0.train-jobset",
    described="training-job-set",
    failed_reason="FailJobSetFailurePolicyAction",
    gang=True,
)
TRAINJOB = Engine(
    kind=trainjob.KIND,
    pods="train-trainjob-node-0-{}-",
    master="train-trainjob-node-0-0.train-trainjob",
    described="training-training-runtime",
    failed_reason="FailJobSetFailurePolicyAction",
    gang=True,
)
PYTORCHJOB = Engine(
    kind=pytorchjob.KIND,
    pods="train-pytorchjob-worker-{}",
    master="train-pytorchjob-first",
    described="training-pytorch-job",
    failed_reason="PyTorchJobFailed",
    gang=False,
)
ENGINES = (JOBSET, TRAINJOB, PYTORCHJOB)
# What takes long and differs least is asked of one kind by `make test`, and of all by
# `make test-engines`.
IN_DEPTH = ENGINES if os.environ.get("DISTTRAIN_ALL_ENGINES") else (JOBSET,)
