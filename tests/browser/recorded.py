"""A stand-in for the source of the page's data, with answers in the shapes of a real run.

The page's own functions make the answers from made-up pods, events and lines, so that no shape is
written here a second time. The end-to-end test uses the real source.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cli.dashboard.details import goodput_of, log_of, rank_rows
from cli.dashboard.run_rows import rows_of
from cli.dashboard.source import UnknownError
from cli.logs.line import Line
from cli.runs.pod_curves import thinned
from cli.runs.table import Run
from cli.status.judge import RunStatus
from cli.status.platform_status import PlatformStatus
from cli.status.progress import Progress
from cli.status.screen import platform_line
from tests.cli.records import RECORD
from tests.trainer.events.stories import Story
from trainer.events.event import Events, Name
from trainer.watch.slow import Cause, Finding

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
SEEN = {"age_seconds": 2.0, "problem": "", "is_querying": False}
NOT_SEEN = {"age_seconds": None, "problem": "", "is_querying": True}
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
STEPS = 4000
SLOW = str(Finding(Cause.DATA, 3, 1, 1.8, 0.18, 0.1))


def status(state: str, detail: str = "", step: int | None = 2860) -> RunStatus:
    """Return the state of the run `dev`."""
    progress = Progress(
        step,
        STEPS if step else None,
        loss="1.8307" if step else "",
        tokens_per_second="48210",
        mfu="31.2%",
        eta="12m04s",
        saved_step=2800,
        saved_at=NOW - timedelta(seconds=40),
    )
    stack, job = "organization/disttrain/dev", "StatefulSet train-multipod"
    return RunStatus(stack, "disttrain", job, 4, state, detail, progress=progress)


def folder(name: str, step: int | None, is_done: bool) -> Run:
    """Return what the volume tells of a run."""
    loss = None if step is None else 1.9021
    return Run(
        name=name,
        step=step,
        max_steps=STEPS,
        loss=loss,
        val_loss=None if step is None else 1.9512,
        lowest_val_loss=None if step is None else 1.9433,
        lowest_val_loss_step=step and step - 250,
        checkpoint_step=step,
        checkpoint_age_seconds=None if step is None else 7200.0,
        size_bytes=812_000_000,
        is_done=is_done,
        used_by=[],
        tokens=None if step is None else step * 16384,
        tokens_per_second=None if step is None else 47000.0,
        world_size=None if step is None else 4,
    )


FOLDERS = [
    folder("dev", 2860, False),
    folder("wide", STEPS, True),
    folder("not-begun", None, False),
]


def pods(ready: int = 2) -> list[dict[str, Any]]:
    """Return two pods with two ranks each, of which the first `ready` are ready."""
    found: list[dict[str, Any]] = []
    for number in range(2):
        is_ready = number < ready
        container: dict[str, Any] = {"restartCount": number}
        if not is_ready:
            container["state"] = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
        found.append(
            {
                "metadata": {
                    "name": f"train-multipod-{number}",
                    "labels": {"apps.kubernetes.io/pod-index": str(number)},
                },
                "spec": {
                    "nodeName": f"gpu-{number}.example.org",
                    "containers": [{"env": [{"name": "PET_NPROC_PER_NODE", "value": "2"}]}],
                },
                "status": {
                    "phase": "Running" if is_ready else "Pending",
                    "startTime": (NOW - timedelta(hours=3)).isoformat(),
                    "conditions": [{"type": "Ready", "status": str(is_ready)}],
                    "containerStatuses": [container],
                },
            }
        )
    return found


def curves() -> dict[str, Any]:
    """Return the curves of a run of 2860 steps."""

    def loss(step: int) -> float:
        return 1.7 + 2.6 * math.exp(-step / 500) + 0.04 * math.sin(step * 1.7)

    steps = range(1, 2861)
    return {
        "loss": thinned([(step, loss(step)) for step in steps], 300),
        "val_loss": [(step, loss(step) + 0.06) for step in range(250, 2860, 250)],
        "tokens_per_second": thinned(
            [(step, 48000 + 900 * math.sin(step / 40)) for step in steps], 300
        ),
    }


NO_CURVES: dict[str, list[float]] = {"loss": [], "val_loss": [], "tokens_per_second": []}


def goodput() -> dict[str, Any]:
    """Return the account of a run that was restarted once."""
    told = Story()
    told.starts(9000, 900, 200, 600)
    for _ in range(12):
        told.trains(50, 90, data_ms=40)
        told.evaluates(900)
    told.saves(300)
    told.trains(50, 90)
    told.rank_dies(400, 900)
    told.round(8000, 1200, 100, 2500)
    told.note(
        Name.TRANSPORT,
        rank="0,1",
        transport="ib",
        device="mlx5_0,mlx5_1",
        gpu_direct="yes",
        asked="ib,roce",
        as_asked=True,
    )
    for _ in range(6):
        told.trains(50, 90)
    return goodput_of(Events.of(told.content))


def lines(now: datetime = NOW) -> list[Line]:
    """Return 50 lines about steps, an error of a GPU and a line of a node, from the last minute."""
    begin = now.timestamp() - 60
    found = [
        Line(
            begin + step,
            0,
            0,
            f"step {2800 + step}/{STEPS} loss 1.8307 val - lr 6.0e-04 tokens/s 48210 "
            "grad_norm 0.412 mfu 31.2% p50 340.1ms p95 352.0ms data 0.4% mem 18211MiB eta 12m04s",
        )
        for step in range(50)
    ]
    found.append(Line(begin + 51, 1, 3, "NVRM: Xid (PCI:0000:3b:00): 63, pid=1, row remapper"))
    return [*found, Line(begin + 52, 1, None, "[node 1] round 2: 2 node(s) x 2 rank(s)")]


@dataclass
class Recorded:
    """A stand-in for `cli.dashboard.source.Source`; a test changes the fields of its answers."""

    status: RunStatus = field(default_factory=lambda: status("training"))
    folders: list[Run] = field(default_factory=lambda: list(FOLDERS))
    name: str = "dev"
    unseen: str = ""
    cluster: Mapping[str, Any] = field(default_factory=lambda: dict(SEEN))
    volume: Mapping[str, Any] = field(default_factory=lambda: dict(SEEN))
    has_runs: bool = True
    parts: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {
            "ranks": {**SEEN, "content": rank_rows(pods(), NOW, 48210.0, SLOW)},
            "curves": {**SEEN, "content": curves()},
            "goodput": {**SEEN, "content": goodput()},
            "logs": {**SEEN, "content": log_of(lines(), [])},
            "sample": {
                **SEEN,
                "content": {"text": "To be, or not to be:\nthe question.", "tokens": 9},
            },
        }
    )
    asked: list[str] = field(default_factory=lambda: [])

    def see(self, part: str, run_id: str) -> dict[str, Any]:
        self.asked.append(part)
        rows = rows_of([(self.status, RECORD)], {RECORD.owner: {self.name}}, self.folders, NOW)
        if part == "overview":
            platform = PlatformStatus(2, gpus=8, gpus_used=4)
            return {
                "cluster": dict(self.cluster),
                "volume": dict(self.volume),
                "platform": platform_line(platform) if self.has_runs else "",
                "unseen": self.unseen,
                "runs": [{"id": row.id, **row.shown} for row in rows] if self.has_runs else [],
            }
        if part not in self.parts or run_id not in {row.id for row in rows}:
            raise UnknownError(f"run {run_id!r} is not there")
        if run_id.startswith("volume.") and part in ("curves", "ranks"):
            empty = NO_CURVES if part == "curves" else []
            return {**SEEN, "content": empty if "not-begun" in run_id else curves()}
        return self.parts[part]
