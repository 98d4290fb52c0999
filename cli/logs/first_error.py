"""Finds the line of a run's log that names the cause of its newest failed start.

This module is pure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cli.logs.causes import NODE_LOST, TRACEBACK, Weight, weigh
from cli.logs.explain import explain
from cli.logs.labels import label, shown, tamed
from cli.logs.line import Line

BEFORE_LINES = 12
AFTER_LINES = 4
LONGEST_TRACEBACK = 60  # lines
SAME_CRASH_SECONDS = 120.0
_ROUND = re.compile(r"\[node \d+\] round \d+: ")
_NODE_ENDED = re.compile(r"\[node \d+\] (?:fatal|giving up for now|stopped by a signal)\b")
_RANK_IN_TEXT = re.compile(
    r"\brank (\d+) (?:was (?:killed|ended)|ended) by|^\[rank(\d+)\]:|^rank (\d+): "
)
_HANGS = re.compile(
    r"\[node \d+\] no step for \d+ s: "
    r"(?:rank (?P<rank>\d+) on |ranks [\d, ]+ on )?node (?P<node>\d+) "
)


@dataclass(frozen=True)
class FirstError:
    """The cause, and the lines of the same process around it.

    Args:
        line: the line with the cause. Its node and rank are those of the process at fault, if they
            are known.
        written: the same line with the node and rank that wrote it. A node may write about a rank.
        weight: how sure it is that this is the cause.
        before, after: the lines of the same process before and after it, without consequences of
            the cause.
    """

    line: Line
    written: Line
    weight: Weight
    before: tuple[Line, ...]
    after: tuple[Line, ...]


def first_error(lines: Sequence[Line]) -> FirstError | None:
    """Find the first line of the newest failed start that names the cause.

    Args:
        lines: the lines of all ranks, in the order of time.

    Returns:
        The line with its context; None if no start has failed.
    """
    parts = starts(lines)
    for number in range(len(parts) - 1, -1, -1):
        found = _first(parts[number])
        if found is None:
            continue
        weight, at = found
        # Consequences of the failed start may be written after another node has begun the next
        # start. Then the cause is in the start before.
        before = parts[number - 1] if number else []
        if weight == Weight.VICTIM and before and _is_close(before[-1], parts[number][0]):
            earlier = _first(before)
            if earlier is not None and earlier[0] < Weight.VICTIM:
                return _with_context(before, earlier[1], earlier[0])
        return _with_context(parts[number], at, weight)
    return None


def starts(lines: Sequence[Line]) -> list[list[Line]]:
    """Divide the lines into the starts of the run.

    A new start begins when a node begins another round, or when it writes a line after its end.
    """
    parts: list[list[Line]] = []
    in_round: set[int] = set()
    ended: set[int] = set()
    for line in lines:
        begins = line.rank is None and _ROUND.match(line.text) is not None
        is_new = (begins and line.node in in_round) or line.node in ended
        if is_new or not parts:
            parts.append([])
            in_round, ended = set(), set()
        parts[-1].append(line)
        if begins:
            in_round.add(line.node)
        if line.rank is None and _NODE_ENDED.match(line.text):
            ended.add(line.node)
    return parts


def as_text(
    found: FirstError, has_colour: bool, has_time: bool = False, on_terminal: bool = False
) -> str:
    """Return a text for people: the rank, the cause and its meaning, and the lines around it.

    The arguments after `found` are those of `labels.shown`.
    """

    def row(each: Line) -> str:
        return shown(each, has_colour, has_time, on_terminal)

    line = found.line
    who = f"node {line.node}" if line.rank is None else f"rank {line.rank} on node {line.node}"
    sure = {
        Weight.CAUSE: f"The cause is on {who}:",
        Weight.SUSPECT: f"No line names the cause for sure; the first sign is on {who}:",
        Weight.VICTIM: f"Only consequences of a lost rank are in the logs; the first is on {who}:",
    }[found.weight]
    meaning = explain(line.text)
    cause = tamed(line.text) if on_terminal else line.text
    rows = [sure, f"  {cause}", *([f"  -> {meaning}"] if meaning else []), ""]
    rows += [f"  {row(each)}" for each in found.before]
    rows.append(f"> {row(found.written)}")
    rows += [f"  {row(each)}" for each in found.after]
    return "\n".join(rows)


def _first(lines: Sequence[Line]) -> tuple[Weight, int] | None:
    """Return the weight and the index of the first line that most likely names the cause.

    The result is None if no line names a cause or a consequence.
    """
    weights = [(weigh(line.text), number) for number, line in enumerate(lines)]
    weight, number = min(weights, default=(Weight.NOTHING, 0))
    return None if weight == Weight.NOTHING else (weight, number)


def _is_close(line: Line, later: Line) -> bool:
    return later.at - line.at <= SAME_CRASH_SECONDS


def _with_context(lines: Sequence[Line], at: int, weight: Weight) -> FirstError:
    line, fault = lines[at], _at_fault(lines[at])
    same = [n for n, each in enumerate(lines) if label(each) in (label(line), label(fault))]
    here = same.index(at)
    begin = max(0, here - BEFORE_LINES)
    for index in range(here - 1, max(-1, here - LONGEST_TRACEBACK), -1):
        if TRACEBACK.match(lines[same[index]].text):  # the whole traceback is shown
            begin = min(begin, index)
            break
    near = [lines[n] for n in same[begin : here + 1 + AFTER_LINES]]
    kept = [each for each in near if each is line or weigh(each.text) != Weight.VICTIM]
    index = next(n for n, each in enumerate(kept) if each is line)
    return FirstError(fault, line, weight, tuple(kept[:index]), tuple(kept[index + 1 :]))


def _at_fault(line: Line) -> Line:
    """Return the line; if a node wrote it about another node or a rank, with that node or rank."""
    if line.rank is not None:
        return line
    if lost := NODE_LOST.match(line.text):
        return replace(line, node=int(lost["node"]))
    if hangs := _HANGS.match(line.text):
        rank = int(hangs["rank"]) if hangs["rank"] else None
        return replace(line, node=int(hangs["node"]), rank=rank)
    named = _RANK_IN_TEXT.search(line.text)
    rank = int(next(group for group in named.groups() if group)) if named else None
    return replace(line, rank=rank)
