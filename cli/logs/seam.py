"""Joins the records on the volume with the lines of the API server, so that each is shown once.

Each of the two sources has lines that the other one lacks. The volume has the lines of pods that
are gone, and knows the ranks. The API server has lines that were written before the volume could be
used, or while it was full. So a line of the API server waits for its record (the same line on the
volume), and is shown without a rank if none comes. This module is pure.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable

from cli.logs.line import Line

LATE_SECONDS = 10.0  # how much later than its record a line may be stamped by the node
EARLY_SECONDS = 1.0  # how much earlier, for instance because a clock was set back
KEPT_SECONDS = 120.0  # how long a line is kept, in case the same line comes from the other source


class Seam:
    """Joins both sources. A twin of a line is the same line from the other source.

    Args:
        hold_seconds: how long a line of the API server waits for its record.
    """

    def __init__(self, hold_seconds: float) -> None:
        self._hold_seconds = hold_seconds
        self._records = _Twins()  # records whose line of the API server has not come yet
        self._shown = _Twins()  # lines of the API server that were shown without a record
        self._waiting: list[tuple[float, Line]] = []  # when a line came, and the line
        self._words: Counter[tuple[int, str]] = Counter()  # nodes and texts of waiting lines
        self._earliest = float("inf")

    def seen(self, record: Line) -> None:
        """Take a record that is not to be shown, or was already shown."""
        self._records.add(record)

    def record(self, record: Line, all_nodes: bool = False) -> list[Line]:
        """Take the next record of the volume; return the lines that are to be shown now.

        Args:
            record: the record. The records of a node come in the order of time.
            all_nodes: whether the records of all nodes come in one order of time, as in the
                history.
        """

        def has_none(line: Line) -> bool:
            """Whether the line has no record, because it would have come before `record`."""
            same = all_nodes or line.node == record.node
            return line.at < record.at - (EARLY_SECONDS if same else LATE_SECONDS)

        earlier: list[Line] = []
        if self._earliest < record.at - EARLY_SECONDS:
            earlier = self._take(lambda came, line: has_none(line))
        if self._words[record.node, record.text]:
            for number, (_, line) in enumerate(self._waiting):
                if _is_twin(record, line):
                    del self._waiting[number]
                    self._words[record.node, record.text] -= 1
                    return [*earlier, record]
        if self._shown.meet(record, EARLY_SECONDS, LATE_SECONDS):
            return earlier  # the record comes too late: its line was already shown
        self._records.add(record)
        return [*earlier, record]

    def api(self, line: Line, now: float) -> None:
        """Take a line of the API server. `now` is the time of a monotonic clock, in seconds."""
        if not self._records.meet(line, LATE_SECONDS, EARLY_SECONDS):
            self._waiting.append((now, line))
            self._words[line.node, line.text] += 1
            self._earliest = min(self._earliest, line.at)

    def due(self, now: float) -> list[Line]:
        """Return the lines whose records have not come in time, in the order of time."""
        return self._take(lambda came, line: came <= now - self._hold_seconds)

    def before(self, at: float) -> list[Line]:
        """Return the waiting lines that were written before a time (seconds since the epoch)."""
        return self._take(lambda came, line: line.at < at)

    def rest(self) -> list[Line]:
        """Return all lines that still wait; it is called at the end."""
        return self._take(lambda came, line: True)

    def _take(self, is_due: Callable[[float, Line], bool]) -> list[Line]:
        due = [line for came, line in self._waiting if is_due(came, line)]
        self._waiting = [(came, line) for came, line in self._waiting if not is_due(came, line)]
        self._words = Counter((line.node, line.text) for _, line in self._waiting)
        self._earliest = min((line.at for _, line in self._waiting), default=float("inf"))
        for line in due:
            self._shown.add(line)
        return sorted(due, key=lambda line: line.at)


def _is_twin(record: Line, line: Line) -> bool:
    same = (record.node, record.text) == (line.node, line.text)
    return same and record.at - EARLY_SECONDS <= line.at <= record.at + LATE_SECONDS


class _Twins:
    """The times of lines, by the lines' node and text. Old ones are forgotten."""

    def __init__(self) -> None:
        self._times: OrderedDict[tuple[int, str], list[float]] = OrderedDict()
        self._newest = 0.0

    def add(self, line: Line) -> None:
        words = (line.node, line.text)
        self._times.setdefault(words, []).append(line.at)
        self._times.move_to_end(words)
        self._newest = max(self._newest, line.at)
        oldest_to_keep = self._newest - KEPT_SECONDS
        # The dictionary may become empty: the newest line may have met its twin, and the lines of
        # the history are much older.
        while self._times and next(iter(self._times.values()))[-1] < oldest_to_keep:
            self._times.popitem(last=False)

    def meet(self, line: Line, before_seconds: float, after_seconds: float) -> bool:
        """Remove the twin of a line if there is one, and return whether there was one.

        The twin has the same node and text, and was written at most `before_seconds` before or
        `after_seconds` after the line.
        """
        words = (line.node, line.text)
        times = self._times.get(words, [])
        for at in times:
            if line.at - before_seconds <= at <= line.at + after_seconds:
                times.remove(at)
                if not times:
                    del self._times[words]
                return True
        return False
