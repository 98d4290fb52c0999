"""Weights in the format of the published GPT-2: export, and a start from them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.trainer.lab import Lab, records, saved_tensors
from trainer.__main__ import main
from trainer.config import ModelConfig
from trainer.launch.exit_codes import FatalError
from trainer.model.gpt import GPT
from trainer.model.gpt2_weights import export_gpt2_weights, load_gpt2_weights

CONFIG = ModelConfig(n_layer=2, n_head=2, n_embd=32, block_size=16, dropout=0.0, bias=True)


def new_model(seed: int = 0, vocab_size: int = 65, **changes: Any) -> GPT:
    """Return a model with random weights, also for its biases and norms."""
    torch.manual_seed(seed)
    model = GPT(dataclasses.replace(CONFIG, **changes), vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.01 * torch.randn_like(parameter)  # biases and norms are not trivial
    return model


def export(model: GPT, directory: Path, largest_file_bytes: int = 10**9) -> None:
    """Export the model's weights into the folder."""
    tensors = {name: parameter.detach() for name, parameter in model.named_parameters()}
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    export_gpt2_weights(
        model.config,
        model.vocab_size,
        shapes,
        tensors.__getitem__,
        directory,
        largest_file_bytes=largest_file_bytes,
    )


def test_exported_weights_come_back_bit_by_bit(tmp_path: Path) -> None:
    saved, loaded = new_model(1), new_model(2)
    export(saved, tmp_path)
    load_gpt2_weights(loaded, str(tmp_path))
    for one, two in zip(saved.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(one, two)


def test_whoever_may_read_other_files_may_read_exported_weights(tmp_path: Path) -> None:
    """The rights of an exported file are those of every new file here, so that on a shared volume
    the same users can read it.
    """
    export(new_model(), tmp_path / "export")
    (tmp_path / "usual").touch()
    usual = (tmp_path / "usual").stat().st_mode
    assert {path.stat().st_mode for path in (tmp_path / "export").iterdir()} == {usual}


def test_names_and_shapes_are_those_of_the_published_gpt2(tmp_path: Path) -> None:
    export(new_model(), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    assert shapes["wte.weight"] == (65, 32)
    assert shapes["h.1.attn.c_attn.weight"] == (32, 96)  # input x output
    assert shapes["h.1.mlp.c_proj.weight"] == (128, 32)
    assert shapes["h.1.ln_2.bias"] == (32,)
    assert len(shapes) == 2 + 2 * 12 + 2
    described = json.loads((tmp_path / "config.json").read_text())
    assert (described["activation_function"], described["n_head"]) == ("gelu", 2)


def test_a_padded_vocabulary_and_a_model_without_biases_survive_the_round_trip(
    tmp_path: Path,
) -> None:
    saved, loaded = (new_model(seed, vocab_size=1025, bias=False) for seed in (1, 2))
    export(saved, tmp_path)
    assert len(load_file(tmp_path / "model.safetensors")["wte.weight"]) == 1025
    load_gpt2_weights(loaded, str(tmp_path))
    tokens = torch.randint(1025, (2, 9))
    assert torch.equal(saved(tokens), loaded(tokens))
    with_biases = new_model(3, vocab_size=1025, bias=True)
    load_gpt2_weights(with_biases, str(tmp_path))
    torch.testing.assert_close(saved(tokens), with_biases(tokens))


def test_the_prefix_and_the_masks_of_older_files_are_understood(tmp_path: Path) -> None:
    saved, loaded = new_model(1), new_model(2)
    export(saved, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    older = {f"transformer.{name}": tensor for name, tensor in tensors.items()}
    older["transformer.h.0.attn.bias"] = torch.ones(1, 1, 16, 16)
    older["lm_head.weight"] = tensors["wte.weight"].clone()
    file = tmp_path / "older.safetensors"
    save_file(older, file)
    load_gpt2_weights(loaded, str(file))
    assert torch.equal(loaded.wte.weight, saved.wte.weight)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_layer": 1}, r"12 tensors have no place in this model .*h\.1\.attn"),
        ({"n_layer": 3}, r"h\.2\.ln_1\.weight is missing"),
        ({"block_size": 8}, r"wpe\.weight has the shape \[16, 32\], needed: \[8, 32\]"),
        ({"bias": False}, r"tensors have no place in this model \(model\.bias"),
        ({"n_head": 4}, r"model\.n_head is 4, config\.json says 2"),
        ({"gelu": "tanh"}, r"model\.gelu is tanh, config\.json says gelu \(here: exact\)"),
    ],
)
def test_weights_of_another_model_are_refused_with_the_difference(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    export(new_model(), tmp_path)
    with pytest.raises(FatalError, match=rf"train\.initial_weights: .*{words}"):
        load_gpt2_weights(new_model(**changes), str(tmp_path))


def test_a_run_starts_from_exported_weights(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = lab.config(run_name="first", train__max_steps=60)
    lab.train(first, 1)
    weights = tmp_path / "weights"
    assert main(["export", "--run-dir", str(first.run_dir), "--output", str(weights)]) == 0
    assert str(weights) in capsys.readouterr().out
    changes = {"train__initial_weights": str(weights), "train__max_steps": 5}
    second = lab.config(run_name="second", **changes)
    lab.train(second, 1)
    assert records(second)[0]["loss"] == pytest.approx(records(first)[-1]["loss"], abs=0.1)
    assert records(second)[0]["loss"] < records(first)[0]["loss"] - 0.5
    missing = lab.config(run_name="third", train__initial_weights=str(tmp_path / "none"))
    lab.train(missing, 1, expect=78)
    assert "train.initial_weights: " in lab.logs()


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_weights_in_several_files_are_written_and_read(lab: Lab, parallel: str) -> None:
    """Weights over a limit are exported to several files with an index, as published weights over 5
    GB are, and a run of several ranks starts with exactly these weights. With FSDP2 a rank has rows
    of each matrix, also of those that the files hold transposed.
    """
    settings = {"train__max_steps": 2, "train__warmup_steps": 0, "train__parallel": "fsdp"}
    first = lab.config(run_name="first", **settings)
    lab.train(first, 3)
    weights = lab.root / "weights"
    options = ["--output", str(weights), "--largest-file-bytes", "5000"]
    assert main(["export", "--run-dir", str(first.run_dir), *options]) == 0
    names = sorted(path.name for path in weights.iterdir())
    assert names[0] == "config.json"
    assert names[-1] == "model.safetensors.index.json"
    files = names[1:-1]
    assert len(files) > 3
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    index = json.loads((weights / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(files)
    second = lab.config(
        run_name="second",
        train__initial_weights=str(weights),
        train__max_steps=1,
        train__warmup_steps=1,
        train__learning_rate=1e-30,
        train__min_lr=0.0,
        train__parallel=parallel,
    )
    lab.train(second, 3)
    before, after = saved_tensors(first), saved_tensors(second)
    weights_of_model = {name for name in before if name.startswith("model.")}
    assert weights_of_model
    for name in weights_of_model:
        assert torch.equal(before[name], after[name]), name


def test_export_removes_files_of_earlier_one(tmp_path: Path) -> None:
    """A folder has only the weights of the last export, whatever the number of its files. Otherwise
    a reader that loads each safetensors file of the folder would load old weights. Files that an
    export does not write are left alone.
    """
    (tmp_path / "other.safetensors").write_bytes(b"of the user")
    numbers = list[int]()
    for largest in (5000, 50_000, 10**9, 5000):
        export(new_model(largest), tmp_path, largest)
        found = sorted(tmp_path.glob("model*.safetensors"))
        index = tmp_path / "model.safetensors.index.json"
        expected = {"model.safetensors"}
        if index.exists():
            expected = set(json.loads(index.read_text())["weight_map"].values())
        assert {path.name for path in found} == expected
        numbers.append(len(found))
    assert numbers[0] > numbers[1] > numbers[2] == 1
    assert (tmp_path / "other.safetensors").read_bytes() == b"of the user"


def test_damaged_files_are_named(tmp_path: Path) -> None:
    export(new_model(), tmp_path)
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    for content in (whole[:5], whole[:40], whole[:-1], whole[:8] + b"x" + whole[9:]):
        path.write_bytes(content)
        with pytest.raises(FatalError, match=r"cannot be read: .*model\.safetensors is damaged"):
            load_gpt2_weights(new_model(), str(tmp_path))
    path.unlink()
    index = tmp_path / "model.safetensors.index.json"
    for text, words in (
        ("{", "no index of weights"),
        ('{"weight_map": {"wte.weight": "../a.safetensors"}}', "not the name of a file beside it"),
        ('{"weight_map": {"wte.weight": "a.safetensors"}}', "a.safetensors lacks wte.weight"),
    ):
        index.write_text(text)
        save_file({"other": torch.zeros(1)}, tmp_path / "a.safetensors")
        with pytest.raises(FatalError, match=words):
            load_gpt2_weights(new_model(), str(tmp_path))
