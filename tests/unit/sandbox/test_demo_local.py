"""`make demo-local` gives the trainer settings that it takes, for every preset."""

from pathlib import Path

import pytest

from sandbox.demo_local import PRESETS, SHORT, Options, trainer_settings, warm_up_steps
from trainer.config import load_config

# gpt2-124m has no data set of its own: the trainer refuses it and says which key is missing.
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
    """A run shorter than the preset's warm-up was refused, in words of a key that `make` lacks."""
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
    assert set(SHORT) <= set(trainer_settings(Options(), None, ""))
    others = trainer_settings(Options("shakespeare-char"), None, "")
    assert not [word for word in others if "max_steps" in word]


def test_ranks_are_one_on_a_gpu_and_two_on_the_cpu() -> None:
    assert [Options().ranks, Options(device="cuda").ranks, Options(processes=3).ranks] == [2, 1, 3]


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
