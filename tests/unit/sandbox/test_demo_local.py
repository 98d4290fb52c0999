"""`make demo-local` gives the trainer settings that it accepts, for every preset."""

import sys
from pathlib import Path

import pytest

from sandbox.demo_local import (
    PRESETS,
    SHORT,
    Options,
    ranks_of,
    trainer_settings,
    visible_gpus,
    warm_up_steps,
)
from trainer.config import load_config

# The preset gpt2-124m has no data set, so the trainer refuses it and names the missing key.
NAMES = sorted(path.stem for path in PRESETS.glob("*.yaml") if path.stem != "gpt2-124m")


@pytest.mark.parametrize("preset", NAMES)
def test_trainer_takes_the_settings_of_each_preset(preset: str, tmp_path: Path) -> None:
    text = tmp_path / "input.txt"
    text.write_text("To be")
    options = Options(preset, device="cuda", steps=5000)
    given = text if preset.startswith("shakespeare") else None
    first, *rest = trainer_settings(options, given, "ab" * 32)
    config = load_config(Path(PRESETS / f"{preset}.yaml"), rest)
    assert first == f"--config={preset}"
    assert (config.train.max_steps, config.train.device) == (5000, "cuda")
    assert config.run_name == options.run_name


@pytest.mark.parametrize("preset", NAMES)
def test_few_steps_are_taken_by_each_preset(preset: str, tmp_path: Path) -> None:
    """Each preset accepts a run that is shorter than its warm-up. Otherwise the trainer would
    refuse the run and name a key that `make demo-local` does not have.
    """
    text = tmp_path / "input.txt"
    text.write_text("To be")
    given = text if preset.startswith("shakespeare") else None
    for steps in (1, 20):
        _, *rest = trainer_settings(Options(preset, steps=steps), given, "ab" * 32)
        config = load_config(Path(PRESETS / f"{preset}.yaml"), rest)
        assert config.train.max_steps == steps
    usual = load_config(
        Path(PRESETS / f"{preset}.yaml"), ["--dataset.file=/x", "--dataset.sha256=" + "ab" * 32]
    )
    assert warm_up_steps(preset) == usual.train.warmup_steps


def test_default_run_is_short_and_others_are_as_long_as_the_preset() -> None:
    """A run of the default preset is short. The runs of other presets have the length of their
    preset.
    """
    assert set(SHORT) <= set(trainer_settings(Options(), None, ""))
    others = trainer_settings(Options("shakespeare-char"), None, "")
    assert not [word for word in others if "max_steps" in word]


def test_each_rank_has_its_own_gpu() -> None:
    """Each rank has its own GPU, and all GPUs of the machine are used. Otherwise two ranks would
    begin on one GPU and NCCL would refuse the second one, or only one of eight GPUs would be used.
    """
    on_cpu, any_device = Options(), Options("shakespeare-char")
    assert [on_cpu.may_use_gpus, any_device.may_use_gpus] == [False, True]
    assert Options("shakespeare-char", device="cpu").may_use_gpus is False
    assert [ranks_of(on_cpu, 0), ranks_of(any_device, 0), ranks_of(any_device, 1)] == [2, 2, 1]
    cuda = Options(device="cuda")
    assert [cuda.may_use_gpus, ranks_of(cuda, 0), ranks_of(cuda, 8)] == [True, 1, 8]
    assert ranks_of(Options(processes=3), 0) == 3
    with pytest.raises(ValueError, match=r"^PROCESSES: 2 cannot be used: .* 1 can be seen. Set 1 "):
        ranks_of(Options(processes=2), 1)


def test_gpus_are_counted_by_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPUs are counted by torch. The module torch is a stand-in here."""
    text = "class cuda:\n    @staticmethod\n    def device_count(): return 3\n"
    (tmp_path / "torch.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert visible_gpus(Path(sys.executable)) == 3


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"preset": "gpt5"}, "PRESET: 'gpt5' cannot be used: there is no such preset"),
        ({"processes": -1}, "PROCESSES: -1 cannot be used: it is below 0"),
        ({"steps": -5}, "STEPS: -5 cannot be used: it is below 0"),
    ],
)
def test_wrong_option_is_named_with_its_value(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=r"^[A-Z]+: ") as refusal:
        Options(**wrong)  # pyright: ignore[reportArgumentType]
    assert words in str(refusal.value)
