"""The stream of `disttrain logs`, with stand-ins for the volume's pod and for the API server."""

from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest

from cli.logs.line import Line
from cli.logs.merged import Merged
from cli.logs.pod_logs import PodLogs
from cli.logs.volume import Printed, VolumeReader

POD = {"metadata": {"name": "train-singlepod-x", "uid": "1"}, "status": {"phase": "Running"}}


class Volume:
    """A stand-in for the volume's pod: it gives what it was given, one by one, and then nothing."""

    def __init__(self, *printed: Printed) -> None:
        self._printed = deque(printed)

    def next(self, seconds: float) -> Printed | None:
        return self._printed.popleft() if self._printed else None


class Pods:
    """A stand-in for the API server: one pod with some lines, which has ended when it is
    followed.
    """

    def __init__(self, *lines: Line) -> None:
        self._lines, self.problems = list(lines), list[str]()
        self.known: list[float] = []

    def pods(self) -> list[dict[str, Any]]:
        return [POD]

    def there(
        self, pods: list[Any], since: float, known: Callable[[Any], float], tail: int
    ) -> list[Line]:
        self.known = [known(pod) for pod in pods]
        return self._lines

    def follow(self, pods: list[Any]) -> bool:
        return True

    def take(self) -> list[Line]:
        return []

    def now(self) -> float:
        return 1000.0


def rank0(at: float, text: str) -> Line:
    """Return a line as the volume has it, with its rank."""
    return Line(at, 0, 0, text)


def api(at: float, text: str) -> Line:
    """Return a line as the API server has it, without a rank."""
    return Line(at, 0, None, text)


def merged(pods: Pods, volume: Volume | None) -> tuple[Merged, list[str]]:
    """Return the merged stream, and the list to which its warnings go."""
    said: list[str] = []
    reader = cast(VolumeReader, volume) if volume else None
    return Merged(cast(PodLogs, pods), reader, said.append), said


def test_lines_of_both_come_once_and_in_order() -> None:
    """Lines that the volume and the API server both have are shown once, with their rank, in the
    order of time.
    """
    volume = Volume(
        Printed("S", rank0(995, "b")),
        Printed("S", rank0(999, "c")),
        Printed("B", None),
        Printed("R", rank0(900, "a")),
        Printed("R", rank0(995, "b")),
        Printed(".", None),
        Printed("R", rank0(999, "c")),
        Printed("H", None),
        Printed("R", rank0(1000, "d")),
    )
    pods = Pods(
        api(890, "before the log"), api(995.1, "b"), api(997, "no room"), api(999.1, "c"),
        api(1000.1, "d"),
    )  # fmt: skip
    stream, said = merged(pods, volume)
    history = list(stream.history(since=0.0))
    assert [line.text for line in history] == ["before the log", "a", "b", "no room", "c"]
    assert pods.known == [999]  # the API server is asked for later lines
    later = [line for some in stream.follow() for line in some]
    assert [(line.rank, line.text) for line in later] == [(0, "d")]
    assert said == []


def test_where_the_volume_is_lost_the_pods_lines_go_on() -> None:
    """If the volume cannot be read any more, the lines of the pods are still shown, and one warning
    says so.
    """
    volume = Volume(
        Printed("S", rank0(995, "b")),
        Printed("B", None),
        Printed("R", rank0(900, "a")),
        Printed("!", None, "the connection was cut"),
    )
    stream, said = merged(Pods(api(995.1, "b"), api(999, "c")), volume)
    assert [line.text for line in stream.history(since=0.0)] == ["a", "c"]
    assert [line for some in stream.follow() for line in some] == []
    assert len(said) == 1
    assert "cannot be read any more (the connection was cut)" in said[0]


@pytest.mark.parametrize(
    ("phase", "record", "has_begun"),
    [("Running", None, True), ("Pending", None, False), ("Pending", rank0(995, "b"), True)],
)
def test_pods_that_have_not_begun_are_known(
    monkeypatch: pytest.MonkeyPatch, phase: str, record: Line | None, has_begun: bool
) -> None:
    """The stream knows whether its pods have begun: one runs, or the volume has a line. `found_any`
    is true in each case, because there is a pod.
    """
    pods = Pods()
    monkeypatch.setattr(pods, "pods", lambda: [{**POD, "status": {"phase": phase}}])
    seen = [Printed("S", record)] if record else []
    stream, _ = merged(pods, Volume(*seen, Printed("B", None), Printed("H", None)))
    assert not [*stream.history(since=0.0)]
    assert (stream.found_any, stream.has_begun) == (True, has_begun)


def test_without_a_volume_the_pods_lines_are_shown_at_once() -> None:
    """Without a volume, the lines of the pods are shown."""
    stream, said = merged(Pods(api(1, "a"), api(2, "b")), None)
    assert [line.text for line in stream.history(since=0.0, tail=5)] == ["a", "b"]
    assert stream.found_any
    assert said == []


def test_next_pod_of_a_run_that_continues_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """If all pods have ended and the run has not, Kubernetes makes a new pod some seconds later.
    Its lines are shown, and a sentence says what is waited for.
    """
    monkeypatch.setattr("cli.logs.merged.POLL_SECONDS", 0.0)
    pods, said = Pods(), list[str]()
    answers = deque([False, False, True])
    new = deque([[], [api(1001, "the new pod")]])
    monkeypatch.setattr(pods, "take", lambda: new.popleft() if new else [])
    stream = Merged(cast(PodLogs, pods), None, said.append, is_over=answers.popleft)
    assert [*stream.history(since=0.0)] == []
    later = [line.text for some in stream.follow() for line in some]
    assert (later, len(answers)) == (["the new pod"], 0)
    (sentence,) = said
    assert sentence == "all pods of the run have ended; the lines of its next pod follow"


def test_run_that_never_had_a_pod_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pod of a run in a queue may come after days, and its lines are shown then. Nothing
    is said about an end of pods that there never were.
    """
    monkeypatch.setattr("cli.logs.merged.POLL_SECONDS", 0.0)
    pods, said = Pods(), list[str]()
    answers = deque([False, False, True])
    new = deque([[], [api(1001, "the first pod")]])
    monkeypatch.setattr(pods, "pods", lambda: [] if len(answers) > 1 else [POD])
    monkeypatch.setattr(pods, "take", lambda: new.popleft() if new else [])
    stream = Merged(cast(PodLogs, pods), None, said.append, is_over=answers.popleft)
    assert [*stream.history(since=0.0)] == []
    later = [line.text for some in stream.follow() for line in some]
    assert (later, len(answers), stream.found_any) == (["the first pod"], 0, True)
    assert said == []


def test_run_that_is_over_without_a_pod_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any pod or line, the stream of a run that is over ends."""
    pods = Pods()
    monkeypatch.setattr(pods, "pods", list)
    stream = Merged(cast(PodLogs, pods), None, print, is_over=lambda: True)
    assert [*stream.history(since=0.0)] == []
    assert [line for some in stream.follow() for line in some] == []
    assert not stream.found_any
