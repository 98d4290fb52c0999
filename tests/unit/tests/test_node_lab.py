"""The tests of machines run a copy of the program that nobody changes meanwhile."""

from pathlib import Path

from tests.node.lab import FILES, FOLDERS, copy_program


def test_edit_during_a_test_changes_nothing(tmp_path: Path) -> None:
    """An edit of the sources during a test does not change the copy that the test runs. Otherwise a
    script that is edited between two `up` would look like an update without a cause.
    """
    source = tmp_path / "source"
    for folder in FOLDERS:
        (source / folder).mkdir(parents=True)
    for file in FILES:
        (source / file).touch()
    script = source / "infra" / "script.sh"
    script.write_text("before")
    copy = copy_program(source, tmp_path / "copy")
    script.write_text("after")
    assert (copy / "infra" / "script.sh").read_text() == "before"
    assert {path.name for path in copy.iterdir()} == {*FOLDERS, *FILES}
