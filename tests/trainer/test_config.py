"""The configuration of a run: what is refused, with which words, and the presets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.lab import CHECKOUT
from trainer.config import PRESETS_DIR, CheckpointConfig, ConfigError, RunConfig, load_config

VALID: dict[str, Any] = {"dataset": {"url": "https://example.org/a.txt"}}
PRESETS = sorted(path.stem for path in PRESETS_DIR.glob("*.yaml"))


def problems(mapping: dict[str, Any]) -> tuple[str, ...]:
    """Return the problems for which this configuration is refused."""
    with pytest.raises(ValueError, match="not valid") as caught:
        RunConfig.from_mapping(mapping)
    assert isinstance(caught.value, ConfigError)
    return caught.value.problems


@given(interval=st.integers(0, 10_000), asynchronous=st.booleans())
def test_background_checkpoints_come_early_so_that_the_interval_bounds_the_loss(
    interval: int, asynchronous: bool
) -> None:
    checkpoint = CheckpointConfig(interval=interval, asynchronous=asynchronous)
    early = interval - checkpoint.steps_between_saves
    assert early == (interval // 5 if asynchronous else 0)
    assert checkpoint.steps_between_saves > 0 or interval == 0


@pytest.mark.parametrize(
    ("checkpoint", "text"),
    [
        (CheckpointConfig(interval=500),
         "a checkpoint every 400 steps, written in the background; a kill costs at most 500"),
        (CheckpointConfig(interval=3),
         "a checkpoint every 3 steps, written in the background; a kill costs at most 3"),
        (CheckpointConfig(interval=250, asynchronous=False),
         "a checkpoint every 250 steps; a kill costs at most 250"),
        (CheckpointConfig(interval=0),
         "checkpoints only at the end and at each new lowest validation loss; "
         "a kill can cost all steps"),
        (CheckpointConfig(interval=0, keep_best=False),
         "checkpoints only at the end; a kill can cost all steps"),
    ],
)  # fmt: skip
def test_a_run_says_how_often_it_saves_and_what_a_kill_costs(
    checkpoint: CheckpointConfig, text: str
) -> None:
    assert checkpoint.describe() == text


def test_every_error_is_reported_at_once() -> None:
    found = problems(
        {
            "run_name": "has/slash",
            "dataset": {"url": "ftp://example.org", "tokenizer": "words"},
            "train": {"max_steps": 0, "compile": "maybe", "beta2": 1.0},
            "model": {"bias": "yes"},
            "eval": 5,
            "colour": "red",
        }
    )
    keys = [problem.split(":")[0] for problem in found]
    assert sorted(keys) == sorted(
        [
            "run_name",
            "dataset.url",
            "dataset.tokenizer",
            "train.max_steps",
            "train.compile",
            "train.beta2",
            "model.bias",
            "eval",
            "colour",
        ]
    )


@pytest.mark.parametrize(
    ("section", "key", "value", "words"),
    [
        (
            "train",
            "max_steps",
            "abc",
            ["train.max_steps", "'abc'", "a whole number that is at least 1"],
        ),
        ("train", "max_steps", True, ["true"]),
        ("train", "max_steps", 1.5, ["1.5", "whole number"]),
        ("train", "learning_rate", float("nan"), ["nan", "a number that is above 0"]),
        ("train", "dtype", "int8", ["'int8'", "Set auto, float32, bfloat16 or float16"]),
        ("model", "dropout", 1.0, ["1.0", "at least 0 and below 1"]),
        ("dataset", "sha256", "ABC", ["'ABC'", "64 digits in lower-case hexadecimal"]),
    ],
)
def test_an_error_names_key_value_and_what_is_allowed(
    section: str, key: str, value: object, words: list[str]
) -> None:
    mapping = {**VALID, section: {**VALID.get(section, {}), key: value}}
    (problem,) = problems(mapping)
    assert all(word in problem for word in [f"{section}.{key}", *words]), problem


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        (
            {"checkpoint": {"mirror": "s3://me:key@bucket"}},
            "it is not an address such as s3://bucket/prefix, without blanks and without user and",
        ),
        ({"run_name": "a b"}, "it is not a name of at most 63 letters, digits, '.', '_' and '-'"),
        ({"dataset": {"url": "x"}}, "it is not an http(s) address. Set an http(s) address. The"),
        ({"dataset": {"sha256": "x"}}, "it is not a sha256 of 64 digits in lower-case hexadecimal"),
        ({"dataset": {"tokenizer": "x"}}, "it is not char, gpt2 or the path of a tokenizer.json"),
        ({"data_root": "a\nb"}, "it is not a text of one line. Set a text of one line. The option"),
        ({"program": {"files": "x"}}, "it is not a checksum in hexadecimal digits. Set a checksum"),
    ],
)  # fmt: skip
def test_forms_of_texts_are_said_in_words(mapping: dict[str, Any], said: str) -> None:
    """A message says in words which texts an option takes, and shows no regular expression."""
    (found,) = [each for each in problems(mapping) if "cannot be used: it is not" in each]
    assert said in found
    assert not re.search(r"\\S|\[0-9|\[a-z|\.\+|\{\d", found)


def test_an_unknown_key_comes_with_a_suggestion() -> None:
    (problem,) = problems({**VALID, "train": {"max_step": 3}})
    assert "train.max_step" in problem
    assert "did you mean train.max_steps?" in problem
    (problem,) = problems({**VALID, "trian": {}})
    assert "did you mean train?" in problem


@pytest.mark.parametrize(
    ("mapping", "suggestion"),
    [
        (
            {"max_steps": 3},
            "max_steps: 3 cannot be used: there is no such key (did you mean train.",
        ),
        ({"train": {"n_layer": 3}}, "did you mean model.n_layer?"),  # and not train.min_lr
        ({"train": {"max_iters": 3}}, "did you mean train.max_steps?"),  # nanoGPT's name
        ({"train": {"interval": 3}}, "eval.interval or checkpoint.interval or log.interval?"),
        (
            {"train": {"dtype": "bf16"}},
            "Set auto, float32, bfloat16 or float16 (did you mean bfloat16?)",
        ),
        (
            {"train": {"max_steps": "2,000"}},
            "'2,000' cannot be used: it is not a whole number. Set a whole number that is",
        ),
        ({"train": {"max_steps": 2000.0}}, "(did you mean 2000?)"),
        ({"model": {"bias": "yes"}}, "Set true or false (did you mean true?)"),
        ({"dataset": {"tokenizer": "gpt-2"}}, "(did you mean gpt2?)"),
    ],
)
def test_what_was_probably_meant_is_suggested(mapping: dict[str, Any], suggestion: str) -> None:
    dataset = {**VALID["dataset"], **mapping.get("dataset", {})}
    (problem,) = problems({**mapping, "dataset": dataset})
    assert suggestion in problem


@pytest.mark.parametrize(
    "mapping",
    [
        {"train": {"max_steps": -3}},
        {"train": {"dtype": "int8"}},
        {"program": {"command": ["a"], "per": None}},
        {"program": {"command": ["a"], "per": ["node"]}},
        {"program": {"command": ["a"], "per": True}},
    ],
)
def test_nothing_is_suggested_that_is_not_meant(mapping: dict[str, Any]) -> None:
    """Nothing is suggested that is not allowed, and no choice for what is no text or number, such
    as `node` for Python's `None`.
    """
    (problem,) = problems(mapping if "program" in mapping else {**VALID, **mapping})
    assert "did you mean -3" not in problem
    assert "did you mean int8" not in problem
    assert "did you mean node" not in problem


def test_on_and_off_may_stand_without_quotes() -> None:
    assert load_config("shakespeare-char", ["--train.compile=off"]).train.compile == "off"


def test_an_unknown_preset_comes_with_a_suggestion() -> None:
    command = [sys.executable, "-m", "trainer", "train", "--preset", "shakespear-char-cpu"]
    result = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    assert result.returncode == 78
    assert (
        "--preset: 'shakespear-char-cpu' cannot be used: there is no such preset" in result.stderr
    )
    assert "did you mean shakespeare-char-cpu?" in result.stderr


@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        (
            {"model": {"n_embd": 10, "n_head": 3}},
            "model.n_head: 3 cannot be used: it does not divide model.n_embd, which is 10",
        ),
        (
            {"train": {"min_lr": 1.0}},
            "train.min_lr: 1.0 cannot be used: it is above train.learning_rate",
        ),
        (
            {"train": {"max_steps": 5}},
            "train.warmup_steps: 100 cannot be used: it is above train.max_steps, which is 5",
        ),
        ({"train": {"device": "cpu", "backend": "nccl"}}, "train.backend: 'nccl'"),
        ({"dataset": {}}, "dataset.url: not set"),
    ],
)
def test_values_that_contradict_each_other_are_refused(mapping: dict[str, Any], words: str) -> None:
    (problem,) = problems({**VALID, **mapping})
    assert words in problem


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "seed": st.integers(0, 2**31 - 1),
            "model": st.fixed_dictionaries({}, optional={"dropout": st.floats(0, 0.99)}),
            "train": st.fixed_dictionaries(
                {},
                optional={
                    "max_steps": st.integers(100, 10**9),
                    "decay_steps": st.one_of(st.none(), st.integers(100, 10**9)),
                    "dtype": st.sampled_from(["auto", "float32", "bfloat16"]),
                },
            ),
        },
    )
)
def test_mapping_and_config_are_the_same_thing(mapping: dict[str, Any]) -> None:
    config = RunConfig.from_mapping({**VALID, **mapping})
    assert RunConfig.from_mapping(config.to_mapping()) == config


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_valid_and_found_by_name(preset: str) -> None:
    own_text = ["--dataset.file=text"] if preset == "gpt2-124m" else []
    assert load_config(preset, own_text).run_name == preset


def test_the_preset_without_a_corpus_asks_for_one() -> None:
    with pytest.raises(ConfigError, match=r"dataset.url: not set, .* dataset.files, or"):
        load_config("gpt2-124m")


def test_presets_with_a_corpus_name_each_file_once() -> None:
    """The presets with a corpus have the publishers' number of files, each once, and sizes with the
    right total, by which a typing error would show.
    """
    owt, edu = (load_config(f"{name}-124m").dataset for name in ("openwebtext", "fineweb-edu"))
    for dataset, count in ((owt, 80), (edu, 14)):
        assert len({file.url for file in dataset.files}) == count
    assert sum(file.size_bytes or 0 for file in edu.files) == 28_518_193_415
    assert all(file.sha256 for file in edu.files)


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (
            {"files": "a"},
            r"dataset.files: 'a' cannot be used: it is not a list. Write a list .* url, sha",
        ),
        (
            {"files": [{"url": "ftp://x"}]},
            r"dataset.files\[0\].url: 'ftp://x' cannot be used: it is not",
        ),
        (
            {"files": [{"urn": "x"}]},
            r"dataset.files\[0\].urn: 'x' cannot .*no such key \(did you mean .*url",
        ),
        ({"files": [{"sha256": "0" * 64}]}, r"dataset.files\[0\].url: not set"),
        (
            {"files": [{"url": "http://x"}], "sha256": "0" * 64},
            r"dataset.sha256: '0+' cannot be used: it is of one",
        ),
        (
            {"files": [{"url": "http://x"}], "url": "http://y"},
            r"dataset.files: \['http://x'\] cannot be used: dataset.url is set",
        ),
        (
            {"file": "x", "end_of_text": "</s>"},
            r"dataset.end_of_text: '</s>' cannot be used: it is for a",
        ),
        ({"file": "x", "format": "jsonl", "document_separator": "-"}, r"is for plain text, and"),
        (
            {"file": "x", "val_share": 1},
            r"dataset.val_share: 1 cannot be used: it is too large. Set a number that",
        ),
    ],
)
def test_contradictions_of_a_dataset_are_named(dataset: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RunConfig.from_mapping({"dataset": dataset})


@pytest.mark.parametrize(
    ("dataset", "key"),
    [
        ({"url": "https://user:hidden@host/a.txt"}, r"dataset\.url"),
        ({"url": "ftp://user:hidden@host/a.txt"}, r"dataset\.url"),
        ({"urls": "https://hidden@host/a.txt"}, r"dataset\.urls"),
        ({"files": [{"url": "https://user:hidden@host:80/a.txt"}]}, r"dataset\.files\[0\]\.url"),
        ({"url": "https://x", "files": [{"url": "http://user:hidden@host"}]}, r"dataset\.files"),
    ],
)
def test_login_in_address_is_refused(dataset: dict[str, Any], key: str) -> None:
    """An address with a login is refused, and no message shows the password. No download works with
    such an address, and the password would be in `run.yaml` on the volume, in its mirror and in
    logs.
    """
    text = "\n".join(problems({"dataset": dataset}))
    assert re.search(rf"{key}: .*//\[secret\]@host.* cannot be used", text)
    assert "hidden" not in text


@pytest.mark.parametrize(
    "address", ["user:hidden@store/a", "s3://user:hid/hidden@store/a", "s3://a 'b:hidden@store"]
)
def test_login_in_a_wrong_mirror_is_not_shown(address: str) -> None:
    """The message about a mirror that cannot be used hides the login, also in what is no address,
    and shows the host.
    """
    text = "\n".join(problems({"checkpoint": {"mirror": address}}))
    assert re.search(r"checkpoint\.mirror: .*\[secret\]@store.* cannot be used", text)
    assert "hidden" not in text


def test_presets_have_the_hyper_parameters_of_nanogpt() -> None:
    gpu, cpu, gpt2 = (
        load_config(name)
        for name in ("shakespeare-char", "shakespeare-char-cpu", "openwebtext-124m")
    )
    assert (gpu.model.n_layer, gpu.model.n_embd, gpu.model.block_size) == (6, 384, 256)
    assert (gpu.train.global_batch_size, gpu.train.max_steps, gpu.train.beta2) == (64, 5000, 0.99)
    assert (cpu.model.n_layer, cpu.model.n_embd, cpu.model.block_size) == (4, 128, 64)
    assert (cpu.train.global_batch_size, cpu.train.max_steps, cpu.model.dropout) == (12, 2000, 0)
    assert gpt2.train.global_batch_size * gpt2.model.block_size == 491_520
    assert (gpt2.train.learning_rate, gpt2.train.warmup_steps) == (6e-4, 2000)


def test_overrides_win_over_the_file_and_keep_yaml_types(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("dataset: {file: a.txt}\ntrain: {max_steps: 500, learning_rate: 1e-3}\n")
    config = load_config(
        path, ["--train.max_steps=200", "--train.min_lr=1e-5", "--run_name=x", "--model.bias=true"]
    )
    assert config.train.max_steps == 200
    assert (config.train.learning_rate, config.train.min_lr) == (1e-3, 1e-5)
    assert (config.run_name, config.model.bias) == ("x", True)


def test_bad_overrides_and_values_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("run_name: a\ntrain: {max_steps: no}\ndataset: {file: a.txt}\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, ["--train.seed", "--run_name.x=1", "--seed=-1", "--train.betas=1"])
    assert len(caught.value.problems) == 5, caught.value
    text = str(caught.value)
    assert (
        "argument: '--train.seed' cannot be used: it is not an option and its value. Write --s"
        in text
    )
    assert "run_name.x: '1' cannot be used: run_name is no section" in text
    assert "seed: -1" in text
    assert "train.betas: 1 cannot be used: there is no such key" in text
    assert "train.max_steps: false" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: [", "not YAML"),
        ("run_name: 2024-13-45", "not YAML .month must be in 1..12"),
        ("- 1", "does not hold a mapping"),
        (None, "cannot"),
    ],
)
def test_an_unreadable_file_is_reported(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "run.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=words):
        load_config(path)


def test_reading_a_configuration_does_not_import_torch() -> None:
    code = "import sys, trainer.config, trainer.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT).returncode == 0


def test_a_wrong_configuration_ends_with_the_fatal_code() -> None:
    command = [sys.executable, "-m", "trainer", "prepare", "--config", "shakespeare-char"]
    result = subprocess.run(
        [*command, "--train.max_step=3"], cwd=CHECKOUT, capture_output=True, text=True
    )
    assert result.returncode == 78
    assert "did you mean train.max_steps?" in result.stderr
