"""`fetch` brings a verified checkpoint or none, and chooses it by the trainer's own rules."""

import json
from pathlib import Path

import pytest

from cli.fetch import pod_program
from tests.cli.fetch.local_pod import LocalPod, add_checkpoint, contents, fetch, make_run
from trainer.checkpoint import retention, store


def damage(directory: Path, name: str = "model-00000.bin") -> None:
    """Change one byte of a file in a checkpoint."""
    content = bytearray((directory / name).read_bytes())
    content[len(content) // 2] ^= 1
    (directory / name).write_bytes(content)


def steps_in(folder: Path) -> list[str]:
    """Return the names of the checkpoints in a folder."""
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


@pytest.mark.parametrize(
    ("choice", "expected"), [("latest", 300), ("best", 200), ("100", 100), ("none", None)]
)
def test_choice_is_taken_from_all_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str, expected: int | None
) -> None:
    """`fetch` brings exactly the checkpoint that was chosen: the latest, the best, one step or
    none.
    """
    run = make_run(tmp_path / "demo", steps=())
    for step, val_loss in ((100, 2.0), (200, 1.5), (300, None)):
        add_checkpoint(run, step, val_loss=val_loss)
    assert retention.best_step(run / "checkpoints") == 200
    brought = fetch(monkeypatch, LocalPod(), run, tmp_path / "here", choice)
    assert (brought.checkpoint and brought.checkpoint.step) == expected
    here = contents(tmp_path / "here")
    assert here.items() <= contents(run).items()
    assert [name for name in here if not name.startswith("checkpoints/")] == [
        name for name in contents(run) if not name.startswith("checkpoints/")
    ]
    if expected is None:
        assert not (tmp_path / "here" / "checkpoints").exists()
    else:
        assert steps_in(tmp_path / "here") == [f"step-{expected:08d}"]
        assert store.problem(tmp_path / "here" / "checkpoints" / f"step-{expected:08d}") is None


def test_latest_falls_back_to_one_that_verifies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`latest` falls back to the newest checkpoint that verifies. A checkpoint that lacks a file is
    skipped at once, and one with a wrong byte after it has arrived.
    """
    run = make_run(tmp_path / "demo", steps=(100, 200, 300))
    (run / "checkpoints" / "step-00000300" / "layout.json").unlink()
    damage(run / "checkpoints" / "step-00000200")
    said: list[str] = []
    brought = fetch(monkeypatch, LocalPod(), run, tmp_path / "here", say=said.append)
    assert brought.checkpoint
    assert brought.checkpoint.step == 100
    assert steps_in(tmp_path / "here") == ["step-00000100"]
    assert any("step 300 is skipped: layout.json is missing" in line for line in said)
    reason = "model-00000.bin does not have the sha256 of manifest.json"
    assert f"step-00000200 is damaged on the volume: {reason}" in said


def test_run_without_a_whole_checkpoint_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`latest` is refused if no checkpoint verifies, with the reason for each, and with what
    fetches the rest of the run.
    """
    run = make_run(tmp_path / "demo", steps=())
    with pytest.raises(ValueError, match=r"has no verified checkpoint of this run\. Use --check"):
        fetch(monkeypatch, LocalPod(), run, tmp_path / "here")
    damage(add_checkpoint(run, 100))
    (add_checkpoint(run, 200) / "layout.json").unlink()
    reasons = r"\(checkpoint step 200 is .* missing; checkpoint step 100 is .* sha256 .*\)\. Use --"
    with pytest.raises(ValueError, match=reasons):
        fetch(monkeypatch, LocalPod(), run, tmp_path / "here")
    assert fetch(monkeypatch, LocalPod(), run, tmp_path / "here", "none").checkpoint is None


@pytest.mark.parametrize("choice", ["best", "200"])
def test_damaged_one_that_was_asked_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    """A damaged checkpoint is refused if it was chosen as the best or by its step, and is not left
    here as complete.
    """
    run = make_run(tmp_path / "demo")
    damage(add_checkpoint(run, 200, val_loss=1.0), "optimizer-00000.bin")
    with pytest.raises(ValueError, match=r"step 200.* optimizer-00000.bin does not have the sha"):
        fetch(monkeypatch, LocalPod(), run, tmp_path / "here", choice)
    assert not (tmp_path / "here/checkpoints/step-00000200/manifest.json").exists()


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (
            "150",
            "step 150 cannot be fetched: the volume has no checkpoint of it. The steps there: 100",
        ),
        ("best", "no complete checkpoint on the volume has a validation loss"),
    ],
)
def test_one_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str, message: str
) -> None:
    """A step that is not there, or `best` without any validation loss, is refused with the
    reason.
    """
    run = make_run(tmp_path / "demo")
    with pytest.raises(ValueError, match=message):
        fetch(monkeypatch, LocalPod(), run, tmp_path / "here", choice)


def test_unknown_run_is_answered_with_those_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is not on the volume is refused with the names of those that are."""
    make_run(tmp_path / "demo")
    with pytest.raises(ValueError, match=r"'other' is not on the volume. The runs there: demo"):
        fetch(monkeypatch, LocalPod(), tmp_path / "other", tmp_path / "here")


def spoil(directory: Path, how: str) -> None:
    """Damage a checkpoint in the way that `how` names."""
    manifest = directory / "manifest.json"
    if how == "wrong byte":
        damage(directory)
    elif how == "too short":
        (directory / "model-00000.bin").write_bytes(b"")
    elif how == "no manifest":
        manifest.unlink()
    elif how == "no JSON":
        manifest.write_text("{")
    elif how == "state not listed":
        manifest.write_text(manifest.read_text().replace("state.json", "other.json"))
    elif how == "no sizes":
        manifest.write_text('{"files": {"state.json": {}, "layout.json": {}}}')


@pytest.mark.parametrize(
    "how",
    ["", "wrong byte", "too short", "no manifest", "no JSON", "state not listed", "no sizes"],
)
def test_pod_judges_a_checkpoint_as_the_trainer_does(tmp_path: Path, how: str) -> None:
    """The program in the pod judges a checkpoint exactly as the trainer does. The program cannot
    import the trainer, and so the rules exist twice.
    """
    directory = add_checkpoint(tmp_path, 100)
    spoil(directory, how)
    assert pod_program.problem(directory, read=True) == (store.problem(directory) or "")
    assert bool(how) == bool(store.problem(directory))


def test_manifest_that_leads_elsewhere_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint whose manifest names a file outside of the checkpoint is refused."""
    run = make_run(tmp_path / "demo")
    directory = run / "checkpoints" / "step-00000100"
    (run / "elsewhere").write_bytes(b"{}")
    content = json.loads((directory / "manifest.json").read_text())
    content["files"]["../../elsewhere"] = content["files"]["layout.json"]
    (directory / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"names '../../elsewhere', which is no file of it"):
        fetch(monkeypatch, LocalPod(), run, tmp_path / "here", "100")


def test_folder_of_an_own_program_comes_whole_with_its_hidden_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fetch` brings all files in the folder of a user's own program, hidden ones too.
    torch.distributed.checkpoint writes `.metadata`, without which nothing can be loaded.
    """
    run = tmp_path / "demo"
    saved = {"program/step-9/.metadata": b"m", "program/step-9/__0_0.distcp": b"weights"}
    for name, content in {**saved, "metrics.jsonl": b'{"step": 9}\n', ".hidden": b""}.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(content)
    fetch(monkeypatch, LocalPod(), run, tmp_path / "here", "none")
    brought = {name: (tmp_path / "here" / name).read_bytes() for name in saved}
    assert brought == saved
    assert (tmp_path / "here" / "metrics.jsonl").exists()
    assert not (tmp_path / "here" / ".hidden").exists()


def test_links_left_out_are_named_with_their_aims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links to files and folders are not copied, and a line names them with what they lead to. A
    user who was told that all is here might delete the run, and with it the only way to the rest.
    """
    run = make_run(tmp_path / "demo")
    (run / "program").mkdir()
    (run / "program" / "last.ckpt").symlink_to("/data/shared/last.ckpt")
    (run / "program" / "newest").symlink_to("step-9")
    (run / "elsewhere\x1b").symlink_to(tmp_path)
    (run / ".hidden").symlink_to(tmp_path)
    said = list[str]()
    fetch(monkeypatch, LocalPod(), run, tmp_path / "here", "none", said.append)
    [line] = [line for line in said if "link" in line]
    assert "program/last.ckpt (to /data/shared/last.ckpt)" in line
    assert "program/newest (to step-9)" in line
    assert ".hidden" not in line
    assert "\x1b" not in line
    assert not (tmp_path / "here" / "program").exists()
