"""The record of the trouble that a run had, by which the second time is told from the first."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from trainer.checkpoint import second_chance
from trainer.checkpoint.second_chance import forget_trouble, happened_before, raise_diverged
from trainer.config import RunConfig
from trainer.launch.exit_codes import ExitCode, FatalError, RetryableError
from trainer.launch.worker import _out_of_memory  # pyright: ignore[reportPrivateUsage]
from trainer.parallel.world import World


def config_of(root: Path) -> RunConfig:
    return RunConfig.from_mapping({"data_root": str(root), "dataset": {"file": "/text"}})


def fail(*_: Any, **__: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_volume_without_room_does_not_hide_missing_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank that cannot note its trouble reports that trouble, and says what it could not note."""
    monkeypatch.setattr(second_chance, "write_json", fail)
    error = str(torch.OutOfMemoryError("CUDA out of memory"))
    for _ in range(2):
        report = _out_of_memory(config_of(tmp_path), World(), error)
        assert report.code == ExitCode.RETRYABLE
        assert report.reason.startswith("CUDA out of memory")
    said = capsys.readouterr().out
    assert "could not be noted" in said
    assert "No space left on device" in said


def test_run_folder_that_cannot_be_made_does_not_hide_missing_memory(tmp_path: Path) -> None:
    """The same holds if not even the folder of the run is there or can be made."""
    (tmp_path / "runs").write_text("a file where the folder should be")
    report = _out_of_memory(config_of(tmp_path), World(), "CUDA out of memory")
    assert report.code == ExitCode.RETRYABLE
    assert report.reason.startswith("CUDA out of memory")


@pytest.mark.parametrize(
    ("train", "ranks", "advice"),
    [
        (
            {},
            2,
            "lower train.micro_batch_size, set train.activation_checkpointing to true, or set "
            "train.parallel to fsdp",
        ),
        (
            {},
            1,
            "lower train.micro_batch_size, or set train.activation_checkpointing to true",
        ),
        (
            {"micro_batch_size": 1, "activation_checkpointing": True},
            2,
            "set train.parallel to fsdp",
        ),
        (
            {"micro_batch_size": 1, "parallel": "fsdp"},
            2,
            "set train.reduce_each_micro_step to true, or set train.activation_checkpointing to "
            "true",
        ),
        (
            {
                "micro_batch_size": 1,
                "activation_checkpointing": True,
                "parallel": "fsdp",
                "reduce_each_micro_step": True,
            },
            2,
            "use more GPUs, GPUs with more memory, or a smaller model",
        ),
    ],
)
def test_second_lack_of_memory_ends_the_run_with_what_is_left_to_do(
    tmp_path: Path, train: dict[str, Any], ranks: int, advice: str
) -> None:
    """The second lack of memory after the same checkpoint ends the run, because a third start would
    fail too. The advice leaves out what is set already, and what one rank alone cannot do.
    """
    given = {"data_root": str(tmp_path), "dataset": {"file": "/text"}, "train": train}
    config, world = RunConfig.from_mapping(given), World(size=ranks)
    (config.run_dir / "checkpoints/step-00000040").mkdir(parents=True)
    first = _out_of_memory(config, world, "CUDA out of memory")
    assert (first.code, first.reason) == (
        ExitCode.RETRYABLE,
        "CUDA out of memory (if this happens again before a newer checkpoint, the run fails)",
    )
    second = _out_of_memory(config, world, "CUDA out of memory")
    assert (second.code, second.reason) == (
        ExitCode.FATAL,
        f"CUDA out of memory (for the second time after step-00000040; {advice})",
    )


def test_lack_of_memory_counts_from_the_highest_step(tmp_path: Path) -> None:
    """The place of a lack of memory is the checkpoint of the highest step, also where its name has
    a digit more than that of an earlier one.
    """
    config = config_of(tmp_path)
    for name in ("step-99999999", "step-100000000", "step-of-somebody-else"):
        (config.run_dir / "checkpoints" / name).mkdir(parents=True)
    _out_of_memory(config, World(), "CUDA out of memory")
    again = _out_of_memory(config, World(), "CUDA out of memory")
    assert "for the second time after step-100000000" in again.reason


def test_volume_without_room_does_not_hide_a_divergence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 still reaches the exchange for which the other ranks wait."""
    monkeypatch.setattr(second_chance, "write_json", fail)
    with pytest.raises(RetryableError, match="step 7 diverged: loss nan"):
        raise_diverged(tmp_path, World(), 7, "loss nan", 0)


@pytest.mark.parametrize(("newest", "is_told"), [(0, False), (5, True)])
def test_second_divergence_says_what_to_do(tmp_path: Path, newest: int, is_told: bool) -> None:
    """A run that ends because its loss is not finite says which settings to change. Where there is
    a checkpoint, that may be the cause, and the run says how to go on without it. Its copy in a
    mirror would come back if the volume held no other checkpoint.
    """
    with pytest.raises(RetryableError):
        raise_diverged(tmp_path, World(), 7, "loss nan", newest)
    with pytest.raises(FatalError, match=r"Lower train\.learning_rate") as ended:
        raise_diverged(tmp_path, World(), 7, "loss nan", newest)
    words = "(and its copy out of checkpoint.mirror, if set), and the run continues from the one"
    assert (words in str(ended.value)) == is_told


def test_finished_run_forgets_its_trouble(tmp_path: Path) -> None:
    """A run that was started anew in its folder has its second chance again, on each rank."""
    for rank in (0, 11):
        assert not happened_before(tmp_path, rank, "diverged", "step 7")
        assert happened_before(tmp_path, rank, "diverged", "step 7")
    (tmp_path / "metrics.jsonl").touch()
    forget_trouble(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]
    assert not happened_before(tmp_path, 0, "diverged", "step 7")


def test_record_that_cannot_be_removed_does_not_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is finished all the same."""
    happened_before(tmp_path, 0, "diverged", "step 7")
    monkeypatch.setattr(Path, "unlink", fail)
    forget_trouble(tmp_path)
