"""`./disttrain logs --rank` of a program that starts its ranks itself, as torchrun does."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from cli.__main__ import main
from cli.logs.line import Line
from cli.logs.volume import Printed
from cli.stack_outputs import RunPlace
from infra.kube.api_server.access import Access
from tests.cli.records import NOW
from tests.unit.kube.server import ApiServer, api_of

POD = {"metadata": {"name": "train-indexed-0", "uid": "1"}, "status": {"phase": "Running"}}
PLACE = RunPlace(
    access=Access(kubeconfig="{}"),
    namespace="disttrain",
    owner="o",
    image="image",
    run_path="/data/runs/mine",
    workload="train-indexed",
    claim="data",
    program="torchrun train.py",
)


class Pods:
    """A stand-in for the logs of one pod, which has no lines that the volume does not have."""

    problems: tuple[str, ...] = ()

    def __init__(self, *_: object) -> None:
        pass

    def pods(self) -> list[dict[str, Any]]:
        return [POD]

    def there(self, *_: object) -> list[Line]:
        return []

    def now(self) -> float:
        return 1000.0


class Volume:
    """A stand-in for the volume's pod, which sends these lines of the wanted ranks."""

    def __init__(self, *lines: Line) -> None:
        self._printed = [Printed("B", None), *(Printed("R", line) for line in lines)]
        self._printed.append(Printed("H", None))

    def next(self, _: float) -> Printed | None:
        return self._printed.pop(0) if self._printed else None


@pytest.mark.parametrize(
    ("program", "lines", "is_said"),
    [
        ("torchrun train.py", (), True),
        ("torchrun train.py", (Line(900.0, 0, 0, "a"),), False),
        ("", (), False),
    ],
)
def test_rank_of_lines_without_ranks_is_told(
    program: str,
    lines: tuple[Line, ...],
    is_said: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The lines of a program with `per: node` have no ranks. If `--rank` selects no line of a
    program, the command says so; it would follow the run without a word.
    """

    @contextmanager
    def volume(*_: object) -> Iterator[Volume]:
        yield Volume(*lines)

    api = api_of(ApiServer())
    monkeypatch.setattr(api, "now", lambda: NOW)
    monkeypatch.setattr("cli.logs.command.run_place", lambda _: replace(PLACE, program=program))
    monkeypatch.setattr("cli.logs.command.Api", lambda _: api)
    monkeypatch.setattr("cli.logs.command.PodLogs", Pods)
    monkeypatch.setattr("cli.logs.command.volume_or_none", volume)
    monkeypatch.setattr("cli.logs.command.end_in_order", lambda: None)
    assert main(["logs", "--rank", "0", "--no-follow"]) == 0
    assert ("--rank: there is no line of these ranks" in capsys.readouterr().err) == is_said
    assert main(["logs", "--rank", "0", "--no-follow", "--grep", "loss"]) == 0
    assert capsys.readouterr().err == ""
