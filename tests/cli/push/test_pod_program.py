"""The program of `push` in the pod: a run's name appears on the volume when all of it is there."""

import shutil
from pathlib import Path
from typing import cast

from cli.push import pod_program
from tests.cli.fetch.local_pod import contents, make_run

INCOMING = ".push-0123456789ab-demo"


def unfinished(runs: Path, name: str) -> dict[str, int]:
    """Return the unfinished pushes under a name, with the bytes that have arrived of each."""
    return cast(dict[str, int], pod_program.examine(runs, name, INCOMING)["unfinished"])


def test_publish_gives_the_name_once(tmp_path: Path) -> None:
    """The pushed run gets its name in one step. A command whose answer was lost can be repeated,
    and has the same answer.
    """
    before = contents(make_run(tmp_path / INCOMING))
    seen = pod_program.examine(tmp_path, "demo", INCOMING)
    assert (seen["exists"], list(unfinished(tmp_path, "demo"))) == (False, [INCOMING])
    for _ in range(2):
        assert pod_program.publish(tmp_path / INCOMING, tmp_path / "demo") == {"ok": True}
    assert contents(tmp_path / "demo") == before
    assert pod_program.examine(tmp_path, "demo", INCOMING)["exists"]
    assert unfinished(tmp_path, "demo") == {}


def test_publish_replaces_no_run(tmp_path: Path) -> None:
    """A push does not replace a run that has the name already."""
    make_run(tmp_path / INCOMING)
    (tmp_path / "demo").mkdir()
    assert pod_program.publish(tmp_path / INCOMING, tmp_path / "demo") == {"ok": False}
    assert list((tmp_path / "demo").iterdir()) == []


def test_push_of_a_longer_name_is_another_run(tmp_path: Path) -> None:
    """An unfinished push of `demo-2` counts neither for `2` nor for `demo`."""
    (tmp_path / ".push-0123456789ab-demo-2").mkdir()
    assert unfinished(tmp_path, "2") == {}
    assert unfinished(tmp_path, "demo") == {}


def test_room_and_what_has_arrived_are_counted(tmp_path: Path) -> None:
    """The program reports the free room and the bytes that have arrived, also before the folder of
    all runs exists.
    """
    make_run(tmp_path / INCOMING, model_bytes=1_000_000)
    assert 1_000_000 <= unfinished(tmp_path, "demo")[INCOMING] <= 2_000_000
    for folder in (tmp_path, tmp_path / "data" / "runs"):
        free = pod_program.examine(folder, "demo", INCOMING)["free_bytes"]
        assert isinstance(free, int)
        assert 0 <= free <= shutil.disk_usage(tmp_path).total


def test_files_that_have_begun_to_arrive_are_named(tmp_path: Path) -> None:
    """The program names the files that are there, in whole or in part."""
    assert pod_program.examine(tmp_path / "runs", "demo", INCOMING)["arriving"] == []
    folder = tmp_path / INCOMING / "checkpoints" / "step-00000100"
    folder.mkdir(parents=True)
    (folder / "model.bin.partial-0123456789ab").touch()
    (tmp_path / INCOMING / "run.yaml").touch()
    found = pod_program.examine(tmp_path, "demo", INCOMING)["arriving"]
    assert sorted(cast(list[str], found)) == [
        "checkpoints/step-00000100/model.bin.partial-0123456789ab",
        "run.yaml",
    ]
