"""Reads from a pod's last log lines how far a training has come. This module is pure.

The trainer writes these lines (trainer/metrics/console.py, trainer/launch). For a user's own
program the launcher writes them (trainer/program/work.py). Tests check that the patterns match.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any

from cli.printable import printable
from trainer.checkpoint.verified_words import Verified, newer_of, read_verified
from trainer.checkpoint.words import SaveLine, read_line
from trainer.launch.said_again import read_again
from trainer.transport.asked import OTHER
from trainer.volume.figures import SHARED

_STEP = re.compile(
    r"step (?P<step>\d+)/(?P<of>\d+) loss (?P<loss>\S+) .*?tokens/s (?P<speed>\S+) "
    r".*?mfu (?P<mfu>\S+) .*?eta (?P<eta>\S+)(?: slow rank: (?P<slow>.*))?"
)
_PROGRAM_STEP = re.compile(r"program: step (?P<step>\d+)(?:/(?P<of>\d+))?(?: loss (?P<loss>\S+))?")
_PROGRAM_UNSEEN = re.compile(r"program: it runs; (?P<why>.*)")
_NODE = re.compile(r"\[node \d+\] (?P<text>.*)")
_FINISHED = re.compile(r"run \S+ is finished: (?P<how>.*)")
_FATAL = re.compile(r"(?:fatal|giving up for now): (?P<why>.*)")
_LOST = re.compile(r"(?:training stopped|starting again after a failed pod): (?P<why>.*)")
_ROUND_LOST = re.compile(r"round \d+ is lost: (?P<why>.*?)(?:; stopping the other nodes)?$")
_HANGS = re.compile(r"no step for \d+ s: (?P<who>.*)")
_GOODPUT = re.compile(r"goodput (?P<account>\d.*?)(?:; (?P<rank_hours>[\d.]+) rank-hours)?$")
_TRANSPORT = re.compile(rf"{OTHER}(?P<said>.*)|transport[ :]")
_OWN_RANKS = re.compile(r"warning: the ranks are not those of the run: (?P<why>.*)")
_VOLUME = re.compile(rf"{SHARED}(?P<said>.*)")
_WAITING = re.compile(r"waiting for .*")
MOST_TIMES = 20
_NO_SAVE: Mapping[str, Any] = {"saving_step": None, "saving_at": None, "saving_holds": False}


@dataclass(frozen=True)
class Progress:
    """What the lines say. Without a line about it, a text is empty and other values are None.

    Args:
        step: the last step that was reported, of `of` steps.
        stepped_at: when the line about that step was written.
        loss, tokens_per_second, mfu, eta: texts, as the trainer writes them.
        saved_step, saved_at: the last checkpoint that was completed, and when.
        saving_step, saving_at: the checkpoint that is being written, and since when.
        saving_holds: whether training waits until that checkpoint is written.
        verified_step, verified_at, verified_by: the checkpoint of which every byte was last read
            and compared with its sha256, when, and by what. A save alone does not verify it.
        waits_for: what the pods wait for before their ranks start.
        trouble: why the ranks are started again; empty once a later step was reported.
        finished: how the run has ended.
        failed: why it was given up.
        stepped_before: when the step lines before the last one were written, MOST_TIMES at most.
        trouble_at: when `trouble` was written.
        round_is_lost: True if node 0 has written that this start is lost, and has not begun the
            next one.
        slow_rank: which rank slows the others down, and by what, as the last step line says.
        hang: which rank all others wait for; empty once a later step was reported.
        goodput: how much of the run's time was productive, and what was lost to restarts.
        rank_hours: the hours of the run times the number of its ranks, each of which has a GPU, at
            the time `goodput_at`.
        transport: the transport of the ranks and the likely reason, if it is not the one that was
            asked for.
        volume: how long the nodes' writes to the volume took before this start, and how long it
            took until all nodes saw them. A run of one node has no such line.
        unseen: why the steps of a user's own program are not known, though it runs.
        own_ranks: why ranks that a user's own program has started are not those of the run.
    """

    step: int | None = None
    of: int | None = None
    stepped_at: datetime | None = None
    loss: str = ""
    tokens_per_second: str = ""
    mfu: str = ""
    eta: str = ""
    saved_step: int | None = None
    saved_at: datetime | None = None
    saving_step: int | None = None
    saving_at: datetime | None = None
    saving_holds: bool = False
    waits_for: str = ""
    trouble: str = ""
    finished: str = ""
    failed: str = ""
    stepped_before: tuple[datetime, ...] = ()
    trouble_at: datetime | None = None
    round_is_lost: bool = False
    slow_rank: str = ""
    hang: str = ""
    goodput: str = ""
    transport: str = ""
    volume: str = ""
    unseen: str = ""
    own_ranks: str = ""
    rank_hours: float | None = None
    goodput_at: datetime | None = None
    verified_step: int | None = None
    verified_at: datetime | None = None
    verified_by: str = ""

    @property
    def seconds_between_reports(self) -> float | None:
        """The median time between two reported steps, in seconds; None for fewer than three."""
        times = [*self.stepped_before, *([self.stepped_at] if self.stepped_at else [])]
        gaps = [(after - before).total_seconds() for before, after in pairwise(times)]
        return median(gaps) if len(gaps) >= 2 else None


def read_progress(log: str) -> Progress:
    """Read the last lines of a log. Each begins with its time, as Kubernetes writes it.

    Programs may print anything, so characters that would control a terminal become escapes.
    """
    found = Progress()
    for line in log.split("\n"):
        at, _, text = line.partition(" ")
        found = _after(found, _time(at), printable(text.rstrip("\r")))
    return found


def _after(before: Progress, at: datetime | None, text: str) -> Progress:
    if step := _STEP.match(text):
        return replace(
            _stepped(before, at, step),
            tokens_per_second=step["speed"],
            mfu=step["mfu"],
            eta=step["eta"],
            slow_rank=step["slow"] or "",
        )
    if save := read_line(text):
        return _after_save(before, at, save)
    if verified := read_verified(text):
        return _after_verified(before, at, verified)
    node = _NODE.match(text)
    return _after_node(before, at, node["text"]) if node else before


def _after_again(before: Progress, at: datetime, text: str) -> Progress:
    """Read a line that a node has repeated.

    A repeated step counts only if no step is known, because its first line is too old to be seen.
    """
    node = _NODE.match(text)
    is_step = node is not None and _PROGRAM_STEP.match(node["text"]) is not None
    return before if is_step and before.step is not None else _after(before, at, text)


def _after_save(before: Progress, at: datetime | None, save: SaveLine) -> Progress:
    if save.what == "begun":
        return replace(before, saving_step=save.step, saving_at=at, saving_holds=False)
    if save.what == "waited for":
        is_known = before.saving_step == save.step  # if not, the line of its beginning is too old
        since = before.saving_at if is_known else at
        return replace(before, saving_step=save.step, saving_at=since, saving_holds=True)
    over = replace(before, **_NO_SAVE)
    return replace(over, saved_step=save.step, saved_at=at) if save.what == "saved" else over


def _after_verified(before: Progress, at: datetime | None, found: Verified) -> Progress:
    known = before.verified_step
    if known is not None and newer_of(Verified(known, before.verified_by), found) is not found:
        return before
    return replace(before, verified_step=found.step, verified_at=at, verified_by=found.by)


def _stepped(before: Progress, at: datetime | None, step: re.Match[str]) -> Progress:
    times = (*before.stepped_before, *([before.stepped_at] if before.stepped_at else []))
    return replace(
        before,
        stepped_before=times[-MOST_TIMES:],
        step=int(step["step"]),
        of=int(step["of"]) if step["of"] else None,
        stepped_at=at,
        loss=step["loss"] or "",
        saving_holds=False,
        hang="",
        waits_for="",
        # Step lines from before the loss of the round may be printed after the line about it.
        trouble=before.trouble if before.round_is_lost else "",
        finished="",
        failed="",
    )


def _after_node(before: Progress, at: datetime | None, text: str) -> Progress:
    if step := _PROGRAM_STEP.match(text):
        return _stepped(before, at, step)
    if unseen := _PROGRAM_UNSEEN.match(text):
        return replace(before, unseen=unseen["why"], trouble="", waits_for="")
    if finished := _FINISHED.match(text):
        return replace(before, finished=finished["how"], trouble="", waits_for="", **_NO_SAVE)
    if failed := _FATAL.match(text):
        return replace(before, failed=failed["why"], trouble="", waits_for="", **_NO_SAVE)
    if lost := _LOST.match(text):
        no_more = {"waits_for": "", "hang": "", **_NO_SAVE}
        return replace(before, trouble=lost["why"], trouble_at=at, **no_more)
    if lost := _ROUND_LOST.match(text):
        why = before.trouble or lost["why"]  # the line before has the reason in more detail
        no_more = {"waits_for": "", "hang": "", "round_is_lost": True, **_NO_SAVE}
        return replace(before, trouble=why, trouble_at=at, **no_more)
    if hangs := _HANGS.match(text):
        return replace(before, hang=hangs["who"])
    if again := read_again(text):
        return _after_again(before, *again)
    if account := _GOODPUT.match(text):
        hours = float(account["rank_hours"]) if account["rank_hours"] else None
        return replace(before, goodput=account["account"], rank_hours=hours, goodput_at=at)
    if transport := _TRANSPORT.match(text):
        return replace(before, transport=transport["said"] or "")
    if own_ranks := _OWN_RANKS.match(text):
        return replace(before, own_ranks=own_ranks["why"])
    if volume := _VOLUME.match(text):
        return replace(before, volume=volume["said"])
    if _WAITING.match(text):
        return replace(before, waits_for=text)
    if text.startswith("round "):
        before = replace(before, round_is_lost=False)
        texts = ("waits_for", "finished", "failed", "unseen", "transport", "own_ranks")
        return replace(before, **dict.fromkeys(texts, ""), **_NO_SAVE)
    return before


def _time(text: str) -> datetime | None:
    """Parse a time, or return None. Digits after the microseconds are dropped."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def last_words(progresses: Sequence[Progress]) -> str:
    """Return why a run was given up, from the first pod that says so; empty if none does."""
    return next((progress.failed for progress in progresses if progress.failed), "")
