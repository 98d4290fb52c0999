"""A run's name appears on the volume when all of it is there."""

from pathlib import Path

from cli.push import pod_program
from tests.cli.fetch.local_pod import contents, make_run

INCOMING = ".push-0123456789ab-demo"


def test_publish_gives_the_name_once(tmp_path: Path) -> None:
    """An asking whose answer was lost is asked again, and has the same answer."""
    before = contents(make_run(tmp_path / INCOMING))
    assert pod_program.look(tmp_path, "demo") == {"exists": False, "unfinished": [INCOMING]}
    for _ in range(2):
        assert pod_program.publish(tmp_path / INCOMING, tmp_path / "demo") == {"ok": True}
    assert contents(tmp_path / "demo") == before
    assert pod_program.look(tmp_path, "demo") == {"exists": True, "unfinished": []}


def test_publish_replaces_no_run(tmp_path: Path) -> None:
    make_run(tmp_path / INCOMING)
    (tmp_path / "demo").mkdir()
    assert pod_program.publish(tmp_path / INCOMING, tmp_path / "demo") == {"ok": False}
    assert list((tmp_path / "demo").iterdir()) == []


def test_push_of_a_longer_name_is_another_run(tmp_path: Path) -> None:
    (tmp_path / ".push-0123456789ab-demo-2").mkdir()
    assert pod_program.look(tmp_path, "2")["unfinished"] == []
    assert pod_program.look(tmp_path, "demo")["unfinished"] == []
