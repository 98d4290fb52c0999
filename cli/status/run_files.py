"""Reads the runs' own files on the machine with the data, if the cluster does not answer.

The files show how far a run has come and what it has saved. Whether its pods are alive cannot be
known without the cluster, so nothing is reported about that.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from cli.ask_host import SCRIPTS, ask_host
from cli.columns import columns
from cli.facts import Facts
from cli.spans import span_of_seconds
from cli.status.judge import STALLED_SECONDS
from cli.status.progress import Progress, read_progress
from infra.node.doctor_plan import Plan
from infra.node.shell_program import assemble_program

HEAD = ("RUN", "STEP", "LOSS", "TOKENS/S", "LAST STEP", "SAVED")
NOT_KNOWN = "-"


@dataclass(frozen=True)
class RunFiles:
    """What the files of one run say. A value that they do not give is None.

    Args:
        name: the name of the run's folder.
        step, of: the last logged step, and the number of steps of the whole run.
        loss: the loss at that step, in nats per token.
        tokens_per_second: the speed at that step.
        stepped_seconds_ago: how long ago that step was logged.
        saved_step, saved_seconds_ago: the newest checkpoint, and its age.
        is_done: whether the run has finished.
        saving_step: the checkpoint that is being written, as the run's log says. If the machine was
            lost meanwhile, it is one that was never finished.
        saving_seconds_ago: how long ago that save began.
        saving_holds: whether training waits for that save, as in the state `saving`.
        verified_step, verified_seconds_ago, verified_by: the checkpoint of which every byte was
            last read, how long ago, and by what.
    """

    name: str
    step: int | None
    of: int | None
    loss: float | None
    tokens_per_second: float | None
    stepped_seconds_ago: float | None
    saved_step: int | None
    saved_seconds_ago: float | None
    is_done: bool
    saving_step: int | None = None
    saving_seconds_ago: float | None = None
    saving_holds: bool = False
    verified_step: int | None = None
    verified_seconds_ago: float | None = None
    verified_by: str = ""


@dataclass(frozen=True)
class Found:
    """The runs on the machine with the data.

    Args:
        runs: the runs that were read.
        others: the names of the runs that were not read.
    """

    runs: Sequence[RunFiles]
    others: Sequence[str] = ()


def read_run_files(plan: Plan, wanted: str = "") -> Found:
    """Read the runs whose folders are on the plan's host, the last changed folder first.

    Args:
        plan: says how that host is reached.
        wanted: the name of the only run to read. If it is empty, the newest runs are read.

    Raises:
        ValueError: there is no folder of runs on that machine.
        cli.ask_host.UnreachableError: the machine does not answer.
    """
    root = plan.expect.data_root
    text = (SCRIPTS / "facts-runs.sh").read_text()
    program = assemble_program(text, {"DATA_ROOT": root, "RUN": wanted})
    facts = ask_host(plan, program, "runs_done")
    if facts.get("runs") != "yes":
        raise ValueError(f"{plan.host_name} has no folder {root}/runs")
    return parse_run_files(facts)


def require_run(name: str, found: Found, reason: str) -> None:
    """Raise ValueError if there is no run of this name; the text names the existing runs.

    Args:
        name: the name of the run's folder.
        found: what was read. It has only this run, if the run exists.
        reason: why the cluster could not be asked.
    """
    if not found.runs:
        there = ", ".join(found.others) or "none"
        raise ValueError(
            f"the cluster could not be asked: {reason}. RUN: {name!r} is no folder of a run on the "
            "machine with the data. Without the cluster, give a run by the name of its folder. The "
            f"folders there: {there}"
        )


def parse_run_files(facts: Facts) -> Found:
    """Parse the facts of scripts/facts-runs.sh. This function is pure."""
    now = float(facts.get("now"))
    said = [value.partition("|") for value in facts.values.get("said", [])]

    def log_of(name: str) -> Iterable[str]:
        return (line for whose, _, line in said if whose == name)

    runs = [_parse(value, log_of, now) for value in facts.values.get("run", [])]
    return Found(runs, facts.values.get("other", []))


def _parse(value: str, log_of: Callable[[str], Iterable[str]], now: float) -> RunFiles:
    name, of, is_done, saved, saved_age, record = value.split("|", 5)
    last = _record(record)
    at = last.get("unix_time")
    run = RunFiles(
        name,
        step=last.get("step"),
        of=int(of) if of.isdecimal() else None,
        loss=last.get("loss"),
        tokens_per_second=last.get("tokens_per_second"),
        stepped_seconds_ago=None if at is None else max(0.0, now - float(at)),
        saved_step=int(saved) if saved.isdecimal() else None,
        saved_seconds_ago=float(saved_age) if saved_age.lstrip("-").isdecimal() else None,
        is_done=is_done == "yes",
    )
    told = read_progress("\n".join(log_of(name)))
    run = _with_verified(run, told, now)
    return run if run.is_done else _with_save(run, told, now)


def _with_verified(run: RunFiles, told: Progress, now: float) -> RunFiles:
    """Add the checkpoint that was last verified, if the log has a line about one."""
    at = told.verified_at
    return replace(
        run,
        verified_step=told.verified_step,
        verified_seconds_ago=None if at is None else max(0.0, now - at.timestamp()),
        verified_by=told.verified_by,
    )


def _with_save(run: RunFiles, told: Progress, now: float) -> RunFiles:
    """Add the save under way, if the log has a line about one and no checkpoint is newer."""
    if told.saving_step is None or told.saving_at is None:
        return run
    if run.saved_step is not None and run.saved_step >= told.saving_step:
        return run
    ago = max(0.0, now - told.saving_at.timestamp())
    return replace(
        run,
        saving_step=told.saving_step,
        saving_seconds_ago=ago,
        saving_holds=told.saving_holds,
    )


def _record(text: str) -> Mapping[str, Any]:
    try:
        found: object = json.loads(text)
    except ValueError:
        return {}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def as_text(found: Found, plan: Plan, reason: str) -> str:
    """Return why the cluster was not seen, and then a line for each run.

    This function is pure.
    """
    where = f"{plan.host_name}, {plan.expect.data_root}/runs"
    lines = [
        f"the cluster was not seen: {reason}",
        f"from the runs' own files ({where}); whether their pods live is not known:",
    ]
    if not found.runs:
        return "\n".join([*lines, "there is no run yet"])
    head, *rows = columns([HEAD, *map(_row, found.runs)])
    lines.append(head)
    for run, row in zip(found.runs, rows, strict=True):
        lines += [row, *_verified(run)]
    if count := len(found.others):
        runs = "1 more run was" if count == 1 else f"{count} more runs were"
        lines.append(f"{runs} not read: ./disttrain status RUN reads the one of that name")
    return "\n".join(lines)


def as_json(found: Found, reason: str) -> str:
    """Return JSON for programs. Its keys differ from those of a status of the cluster.

    This function is pure.
    """
    content = {
        "cluster_unseen": reason,
        "run_files": [asdict(run) for run in found.runs],
        "not_read": list(found.others),
    }
    return json.dumps(content, indent=2)


def _row(run: RunFiles) -> tuple[str, ...]:
    total = "" if run.of is None else f"/{run.of}"
    saved = NOT_KNOWN if run.saved_step is None else f"step {run.saved_step}"
    when = (
        "" if run.saved_seconds_ago is None else f", {span_of_seconds(run.saved_seconds_ago)} ago"
    )
    last = NOT_KNOWN
    if run.stepped_seconds_ago is not None:
        last = f"{span_of_seconds(run.stepped_seconds_ago)} ago"
    return (
        run.name,
        NOT_KNOWN if run.step is None else f"{run.step}{total}",
        NOT_KNOWN if run.loss is None else f"{run.loss:.4f}",
        NOT_KNOWN if run.tokens_per_second is None else f"{run.tokens_per_second:.0f}",
        "finished" if run.is_done else last,
        f"{saved}{when}{_saving(run)}",
    )


def _verified(run: RunFiles) -> list[str]:
    """Return the line about the verified checkpoint, as a list; empty if none is known."""
    if run.verified_step is None:
        return []
    ago = run.verified_seconds_ago
    when = "" if ago is None else f"{span_of_seconds(ago)} ago, "
    return [f"  verified: step {run.verified_step}, {when}by {run.verified_by}"]


def _saving(run: RunFiles) -> str:
    """Return a text about a save that is under way or never ended; empty if there is none."""
    if run.saving_step is None or run.saving_seconds_ago is None:
        return ""
    how_long = span_of_seconds(run.saving_seconds_ago)
    if run.saving_seconds_ago > STALLED_SECONDS:
        return f"; the save of step {run.saving_step}, begun {how_long} ago, has not ended"
    holds = ", and training waits for it" if run.saving_holds else ""
    return f"; saving step {run.saving_step} for {how_long}{holds}"
