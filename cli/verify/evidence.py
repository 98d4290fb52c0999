"""The evidence that `disttrain verify` gathers about a run, and helpers for its results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cli.check import Result, Status
from cli.status.judge import RunStatus
from infra.kube.objects import Json


@dataclass(frozen=True)
class Evidence:
    """What was seen of one run.

    Args:
        status: the state of the run, as `./disttrain status` shows it.
        world_size: the number of its ranks.
        pods: its training pods.
        probes: the answer of each pod to pod_probe.py, by the pod's name.
        unseen: why a pod could not be asked, by the pod's name.
        log: the first lines of node 0's log.
        losses: the step and the training loss of each record.
        checkpoint: the newest checkpoint, as run_probe.py describes it; None if there is none.
        smoke_test: what was measured before the first step; None if nothing was.
        volume_check: what the nodes have measured on the volume; None if nothing was measured.
        volume_problem: why the run's folder could not be read; empty if it was read.
    """

    status: RunStatus
    world_size: int
    pods: Sequence[Json]
    probes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    unseen: Mapping[str, str] = field(default_factory=dict[str, str])
    log: str = ""
    losses: Sequence[tuple[int, float]] = ()
    checkpoint: Mapping[str, Any] | None = None
    smoke_test: Mapping[str, Any] | None = None
    volume_check: Mapping[str, Any] | None = None
    volume_problem: str = ""


def result(id: str, status: Status, evidence: str, fix: str = "") -> Result:
    """Make a result of a check without a time limit."""
    return Result(id, status, evidence, fix, 0)


def no_pod(seen: Evidence, id: str) -> Result:
    """Make the result of a check that needs a running pod, if there is none."""
    if seen.status.state == "finished" and not seen.unseen:
        return result(id, "not applicable", "the run is finished, and no pod runs")
    why = "; ".join(f"{name}: {reason}" for name, reason in seen.unseen.items())
    return result(id, "not checked", why or "no pod runs")
