"""Makes the page's list of runs, from the records on the cluster and the folders on the volume.

This module is pure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cli.runs.table import Run
from cli.status.judge import NEEDS_ATTENTION, RunStatus
from cli.status.screen import unasked_transport_of
from infra.kube.record import Record

ON_VOLUME = "kept"  # the state of an unfinished run that no stack has any more


@dataclass(frozen=True)
class Row:
    """A run in the list. A value that is not known is None or an empty text.

    Args:
        id: the name of the run in addresses of the page.
        run_name: the name of its folder on the volume; empty if it is not known.
        owner: the owner of its objects on the cluster; empty for a run that is only on the volume.
        namespace: the namespace of the run; empty for a run that is only on the volume.
        workload: the kind and the name of its workload; empty for a run that is only on the volume.
        shown: what the page shows of it.
    """

    id: str
    run_name: str
    owner: str
    namespace: str
    workload: str
    shown: Mapping[str, Any]


def rows_of(
    statuses: Sequence[tuple[RunStatus, Record]],
    owners: Mapping[str, set[str]],
    volume: Sequence[Run],
    now: datetime,
) -> list[Row]:
    """Return first the runs that have a record, and then those of which only a folder is left.

    Args:
        statuses: the states and the records of the runs that have a record.
        owners: for each owner the names of its runs.
        volume: the runs on the volume.
        now: the API server's time.
    """
    by_name = {run.name: run for run in volume}
    rows: list[Row] = []
    for status, record in statuses:
        names = sorted(owners.get(record.owner, ()))
        name = names[0] if len(names) == 1 else ""
        rows.append(_of_record(status, record, name, by_name.get(name), now))
    taken = {name for row in rows for name in owners.get(row.owner, ())}
    return rows + [_of_folder(run) for run in volume if run.name not in taken]


def _of_record(
    status: RunStatus, record: Record, name: str, folder: Run | None, now: datetime
) -> Row:
    progress = status.progress
    saved = None
    if progress.saved_at:
        saved = max(0.0, (now - progress.saved_at).total_seconds())
    shown = _from_folder(folder) if folder else dict[str, Any]()
    live = {
        "step": progress.step,
        "of": progress.of,
        "loss": number(progress.loss),
        "tokens_per_second": number(progress.tokens_per_second),
        "saved_step": progress.saved_step,
        "saved_age_seconds": saved,
    }
    shown |= {key: value for key, value in live.items() if value is not None}
    shown |= {
        "state": status.state,
        "detail": status.detail,
        "needs_attention": status.state in NEEDS_ATTENTION,
        "since_seconds": max(0.0, (now - status.since).total_seconds()) if status.since else None,
        "stack": status.short_stack,
        "gpus": status.gpus,
        "transport_warning": unasked_transport_of(status),
        "is_over": status.is_over,
        "eta": progress.eta if status.is_training else "",
        "mfu": progress.mfu if status.is_training else "",
    }
    if not status.is_training:
        shown["tokens_per_second"] = None  # the curve shows the former speed
    return Row(
        id=f"{status.namespace}.{status.short_stack}.{record.owner[:8]}",
        run_name=name,
        owner=record.owner,
        namespace=status.namespace,
        workload=status.workload,
        shown={
            "name": name or status.short_stack,
            "namespace": status.namespace,
            "workload": status.workload,
            **shown,
        },
    )


def _of_folder(run: Run) -> Row:
    state, detail = (
        ("finished", "no stack has it now")
        if run.is_done
        else (ON_VOLUME, "no stack has it now; its folder is on the volume")
    )
    shown = {
        **_from_folder(run),
        "name": run.name,
        "state": state,
        "detail": detail,
        "needs_attention": False,
        "is_over": True,
        "tokens_per_second": None,
    }
    return Row(f"volume.{run.name}", run.name, "", "", "", shown)


def _from_folder(run: Run) -> dict[str, Any]:
    return {
        "step": run.step,
        "of": run.max_steps,
        "loss": run.loss,
        "val_loss": run.val_loss,
        "lowest_val_loss": run.lowest_val_loss,
        "lowest_val_loss_step": run.lowest_val_loss_step,
        "saved_step": run.checkpoint_step,
        "saved_age_seconds": run.checkpoint_age_seconds,
        "tokens": run.tokens,
        "world_size": run.world_size,
        "size_bytes": run.size_bytes,
    }


def number(text: str) -> float | None:
    """Return a number that the trainer has printed; None for `-`, and for NaN and infinity."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None
