"""Judges the evidence about the volume that the nodes share. This module is pure."""

from cli.check import Result
from cli.verify.evidence import Evidence, result
from trainer.volume.figures import SHARED, Figures, figures_line

ID = "shared-volume"


def shared_volume(seen: Evidence) -> Result:
    """Show what the nodes measured on the volume.

    A run whose nodes do not share the volume ends before its first step. So a measured volume is
    always ok.
    """
    if len(seen.pods) == 1:
        return result(ID, "not applicable", "the run has one pod")
    if seen.volume_problem:
        return result(ID, "not checked", seen.volume_problem)
    if seen.volume_check is None:
        said = (
            "nothing was measured: a run of one pod needs no such check, and "
            "run.train.volume_timeout_seconds 0 leaves it out"
        )
        return result(ID, "not applicable", said)
    nodes = {
        int(each["node"]): Figures(
            float(each["write_seconds"]),
            float(each["rename_seconds"]),
            float(each["visible_seconds"]),
            str(each["file_system"]),
        )
        for each in seen.volume_check["nodes"]
    }
    return result(ID, "ok", figures_line(nodes).removeprefix(SHARED))
