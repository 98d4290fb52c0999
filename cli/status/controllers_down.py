"""Adds to the status of a run which of the controllers that it needs are down."""

from dataclasses import replace

from cli.status.judge import OVER, RunStatus, Seen
from infra.kube.controllers.programs_of_runs import ProgramsOfRuns
from infra.kube.objects import Json, is_ending

# A controller changes nothing about these runs: they train, or they have ended for good.
NEED_NONE = ("training", "saving", "quiet", "finished", "failed", "gone")


def needs_controllers(state: str, item: Json) -> bool:
    """Whether a run in this state goes on only if its controllers work. This function is pure.

    Args:
        state: the state of the run.
        item: its workload. While it is being deleted, also a run that has ended needs them, because
            they let the workload go.
    """
    return state not in NEED_NONE or (state in OVER and is_ending(item))


def with_controllers_down(status: RunStatus, seen: Seen, programs: ProgramsOfRuns) -> RunStatus:
    """Return the status with the controllers that are down at the end of its detail.

    The cluster is not asked about a run that trains or that has no workload.

    Args:
        status: the status of the run.
        seen: what was seen of the run.
        programs: asks the cluster about the programs of controllers.
    """
    if seen.item is None or not needs_controllers(status.state, seen.item):
        return status
    down = programs.words_of_down(seen.record.workload, seen.item)
    return replace(status, detail="; ".join(filter(None, (status.detail, down))))
