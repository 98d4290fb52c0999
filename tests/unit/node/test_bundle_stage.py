"""The script that takes a bundle's files to a machine, run for real."""

from pathlib import Path

from tests.unit.run_script import run


def test_machine_that_has_another_name_keeps_its_bundle(tmp_path: Path) -> None:
    """As with its authorities: k3s is repaired from there."""
    (tmp_path / "run").mkdir()
    stage = tmp_path / "stage"

    def act(action: str, **more: str) -> str:
        done = run("bundle-stage.sh", action, STAGE=str(stage), ROOT=str(tmp_path), **more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    act("create", NODE="gpu2")
    (stage / "k3s").write_text("k3s")
    act("create", NODE="gpu3")
    assert "this host is the node gpu3 by now" in act("delete", NODE="gpu2")
    assert (stage / "k3s").exists()
    assert "this host is the node gpu3 by now" in act("delete")
    act("create")
    assert "this host is the first machine by now" in act("delete", NODE="gpu3")
    act("delete")
    assert not stage.exists()
