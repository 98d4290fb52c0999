"""What `disttrain verify` has seen of a run, and the form of its results."""

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
        status: the run in one word, as `./disttrain status` has it.
        world_size: how many ranks it has.
        pods: those of its training.
        probes: what each pod has answered, by the pod's name.
        unseen: why a pod could not be asked, by the pod's name.
        log: the first lines of node 0's log.
        losses: step and training loss of each record.
        checkpoint: the newest one, as run_probe.py describes it; None where there is none.
        smoke_test: what was measured before the first step; None where nothing was.
        volume_check: what the nodes have measured on the volume; None where nothing was.
        volume_problem: why losses and checkpoint were not seen; empty where they were.
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
    """A result that has no limit of its own."""
    return Result(id, status, evidence, fix, 0)


def no_pod(seen: Evidence, id: str) -> Result:
    """The result for what only a running pod can tell."""
    if seen.status.state == "finished" and not seen.unseen:
        return result(id, "not applicable", "the run is finished, and no pod runs")
    why = "; ".join(f"{name}: {reason}" for name, reason in seen.unseen.items())
    return result(id, "not checked", why or "no pod runs")
