"""`python -m trainer restore`, as a user who has lost the volume types it."""

from pathlib import Path
from typing import NoReturn

import pytest

from tests.trainer.lab import Lab, NoSignals
from tests.trainer.mirror.checkpoints import files_of
from tests.trainer.mirror.volume import Volume
from trainer.__main__ import main
from trainer.launch import worker
from trainer.launch.exit_codes import ExitCode
from trainer.mirror.remote_folder import StoreError
from trainer.parallel.world import World

RUN = ("--preset", "shakespeare-char-cpu", "--run_name=words")


def test_newest_checkpoint_comes_with_the_run_configuration(
    mirrored: Volume, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`restore` brings the newest checkpoint and `run.yaml` into an empty folder, and refuses to
    write over a checkpoint that is there.
    """
    home = tmp_path / "home"
    words = ["restore", *RUN, f"--data_root={home}", f"--checkpoint.mirror=s3://{bucket}"]
    assert main(words) == ExitCode.DONE
    root = home / "runs" / "words" / "checkpoints"
    assert files_of(root, 20) == files_of(mirrored.root, 20)
    assert capsys.readouterr().out.splitlines()[-1] == str(root / "step-00000020")
    assert "run_name: words" in (root.parent / "run.yaml").read_text()
    assert main(words) == ExitCode.FATAL  # nothing is written over
    assert "holds step-00000020 already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mirror", "reason"),
    [("", "checkpoint.mirror: it is not set"), ("s3://{bucket}/elsewhere", "holds no checkpoint")],
)
def test_nothing_to_restore_is_said(
    mirror: str, reason: str, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`restore` fails with the reason if no mirror is set, or the mirror holds no checkpoint."""
    given = [f"--checkpoint.mirror={mirror.format(bucket=bucket)}"] if mirror else []
    assert main(["restore", *RUN, f"--data_root={tmp_path}", *given]) == ExitCode.FATAL
    assert reason in capsys.readouterr().err


def test_mirror_that_does_not_answer_is_said_without_words_about_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`restore` says that the mirror could not be asked, and nothing about the start of a run,
    which it does not do.
    """

    def fail(*_: object) -> NoReturn:
        raise StoreError("away")

    monkeypatch.setattr("trainer.mirror.restore.remote_manifests", fail)
    given = [f"--data_root={tmp_path}", f"--checkpoint.mirror=file://{tmp_path}/mirror"]
    assert main(["restore", *RUN, *given]) == ExitCode.RETRYABLE
    assert capsys.readouterr().err.strip() == "the mirror could not be asked: away"


def test_run_whose_mirror_does_not_answer_says_why_it_waits(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without a checkpoint does not begin at step 0 while its mirror may hold one. It says
    that, and what to do.
    """
    run = lab.config(checkpoint__mirror=f"file://{lab.root}/mirror")

    def fail(*_: object) -> NoReturn:
        raise StoreError("away")

    monkeypatch.setattr("trainer.mirror.restore.remote_manifests", fail)
    report = worker._train(run, World(), NoSignals(), None)  # pyright: ignore
    assert report.code == ExitCode.RETRYABLE
    assert "the mirror could not be asked: away" in report.reason
    assert "does not start at step 0" in report.reason
    assert "unset checkpoint.mirror" in report.reason
