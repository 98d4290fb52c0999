"""`./disttrain logs` if the logs on the volume can be read no longer, or never could be."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cli.__main__ import main
from cli.logs.line import Line
from cli.logs.pod_logs import Api
from cli.logs.volume import NoVolumeError, Printed
from tests.cli.records import NOW, PLACE
from tests.unit.kube.server import ApiServer, api_of

RANKS_PLACE = replace(PLACE, world_size=8)
POD: dict[str, Any] = {
    "metadata": {"name": "train-a", "uid": "1"},
    "spec": {"containers": [{"name": "trainer"}]},
    "status": {"phase": "Succeeded", "startTime": "2026-11-22T08:00:00Z"},
}
LATER = "2026-11-22T09:00:00.5Z step 3\n2026-11-22T09:00:01.5Z step 4\n"


class Volume:
    """A stand-in for the volume's pod: it gives what it was given, one by one, and then nothing."""

    def __init__(self, *printed: Printed) -> None:
        self._printed = deque(printed)

    def next(self, seconds: float) -> Printed | None:
        del seconds
        return self._printed.popleft() if self._printed else None


class Ended(ApiServer):
    """A stand-in API server with one pod that has ended, whose log has the lines LATER."""

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        del method, body
        if not path.endswith("/log"):
            return {"items": [POD]} if path.endswith("/pods") else None
        lines = LATER.splitlines(keepends=True)
        lines = [line for line in lines if line >= query.get("sinceTime", "").rstrip("Z")]
        count = int(query.get("tailLines", len(lines)))
        return "".join(lines[len(lines) - count :])


def logs_of(
    volume: Volume | None, monkeypatch: pytest.MonkeyPatch, *options: str
) -> list[Mapping[str, str]]:
    """Run `./disttrain logs`, and return the queries of the requests that follow the pod's log."""
    api, asked = api_of(Ended()), list[Mapping[str, str]]()

    def stream(_: Api, path: str, query: dict[str, str]) -> Any:
        asked.append(query)
        text = str(Ended().answer("GET", path, query, None)).encode()
        return SimpleNamespace(status=200, stream=lambda _: iter([text]))

    @contextmanager
    def reading(*_: Any) -> Iterator[Volume]:
        if volume is None:
            raise NoVolumeError("no node is free")
        yield volume

    monkeypatch.setattr(api, "now", lambda: NOW)
    monkeypatch.setattr(Api, "stream", stream)
    monkeypatch.setattr("cli.logs.command.run_place", lambda _: RANKS_PLACE)
    monkeypatch.setattr("cli.logs.command.Api", lambda _: api)
    monkeypatch.setattr("cli.logs.command.end_in_order", lambda: None)
    monkeypatch.setattr("cli.logs.command.reading", reading)
    for name in ("POLL_SECONDS", "STEP_SECONDS", "HOLD_SECONDS", "ORDER_SECONDS", "QUIET_SECONDS"):
        monkeypatch.setattr(f"cli.logs.merged.{name}", 0.0)
    assert main(["logs", *options]) == 0
    return asked


@pytest.mark.parametrize("follows", [True, False])
def test_lines_still_come_after_their_ranks_are_lost(
    follows: bool, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Only the volume knows the ranks. If it is lost in the middle, `--rank` can select nothing any
    more, so the lines of all ranks are shown, and a warning says so once.
    """
    before = Line(1000.0, 0, 3, "step 2")
    history = [Printed("B", None), Printed("R", before), Printed("R", Line(1000.0, 0, 5, "other"))]
    volume = Volume(*history, Printed("!", None, "the connection was cut"))
    logs_of(volume, monkeypatch, "--rank", "3", *([] if follows else ["--no-follow"]))
    shown, said = capfdbinary.readouterr()
    texts = [line.rpartition(b"] ")[2] for line in shown.splitlines()]
    assert texts == [b"step 2", b"step 3", b"step 4"]
    assert said.count(b"--rank is not applied from here on") == 1


@pytest.mark.parametrize(("tail", "texts"), [("0", []), ("1", [b"step 4"]), ("9", [b"3", b"4"])])
def test_tail_counts_without_the_volume_too(
    tail: str,
    texts: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """`--tail 0` shows only what is written from now on. The pod's log is followed from its last
    line on, although none of its lines is shown.
    """
    (followed, *_) = logs_of(None, monkeypatch, "--tail", tail)
    shown = capfdbinary.readouterr().out.splitlines()
    assert [line[-len(text) :] for line, text in zip(shown, texts, strict=True)] == texts
    assert followed["sinceTime"] == "2026-11-22T09:00:01Z"
