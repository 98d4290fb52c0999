"""What `./disttrain runs` prints at its end. The pod is a stand-in that looks its answers up in a
table.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.__main__ import main
from cli.runs import command
from cli.runs.in_use import Users
from tests.cli.runs.runs_on_volume import given


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Return the pod's answers by the first word of the question; the volume has the run `demo`."""
    found: dict[str, dict[str, Any]] = {
        "list": {"now": 1300.0, "runs": [given("demo")], "free_bytes": 5, "total_bytes": 9}
    }
    found["delete"] = {"state": "deleted"}

    @contextmanager
    def pod(*_: object, **__: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(api=None, ask=lambda word, *_: found[word])

    monkeypatch.setattr(command, "volume_place", lambda _: SimpleNamespace(runs_path="/data/runs"))
    monkeypatch.setattr(command, "volume_pod", pod)
    monkeypatch.setattr(command, "_users", lambda *_: Users())
    monkeypatch.setattr(command, "_picture", lambda *_: "<svg></svg>")
    return found


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"state": "locked"}, "a training holds its lock"),
        ({"state": "link"}, "it is a link"),
        ({"state": "closed", "path": "/data/runs/demo/x"}, "change the folder /data/runs/demo/x."),
    ],
)
def test_run_that_is_still_there_is_not_called_deleted(
    answers: dict[str, dict[str, Any]],
    answer: dict[str, Any],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`runs delete` of a run that the pod did not delete ends with 2 and the reason."""
    answers["delete"] = answer
    assert main(["runs", "delete", "demo", "--yes"]) == 2
    out, err = capsys.readouterr()
    assert (out, words in err) == ("", True), err


@pytest.mark.parametrize("state", ["deleted", "missing"])
def test_run_that_is_gone_is_called_deleted(
    answers: dict[str, dict[str, Any]], state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`runs delete` says that the run is deleted, also if the pod does not find it any more. The
    pod is asked twice if its first answer was lost.
    """
    answers["delete"] = {"state": state}
    assert main(["runs", "delete", "demo", "--yes"]) == 0
    assert capsys.readouterr().out == "run demo is deleted\n"


@pytest.mark.usefixtures("answers")
def test_picture_that_cannot_be_written_names_its_file(
    tmp_path: Path,
    answers: dict[str, dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A picture that cannot be written is named with the reason, and `~` in `--to` means the home
    folder.
    """
    monkeypatch.setenv("HOME", str(tmp_path))
    answers["list"]["runs"].append(given("other"))
    (tmp_path / "file").touch()
    to = str(tmp_path / "file" / "losses.svg")
    assert main(["runs", "compare", "demo", "other", "--to", to]) == 2
    said = f"--to: {to!r} cannot be written: File exists ({tmp_path}/file)"
    assert said in capsys.readouterr().err
    assert main(["runs", "compare", "demo", "other", "--to=~/losses.svg"]) == 0
    assert (tmp_path / "losses.svg").read_text() == "<svg></svg>"


@pytest.mark.usefixtures("answers")
def test_list_ends_with_the_room_that_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    """The list of runs ends with the volume's free room, and `--json` has it too."""
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "the volume has 5 B free of 9 B"
    assert main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["volume"] == {"free_bytes": 5, "total_bytes": 9}
