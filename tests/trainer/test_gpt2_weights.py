from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.lab import Lab, records
from trainer.__main__ import main
from trainer.config import ModelConfig
from trainer.exit_codes import FatalError
from trainer.gpt2_weights import export_gpt2_weights, load_gpt2_weights
from trainer.model import GPT
from trainer.safetensors import read_safetensors, write_safetensors

CONFIG = ModelConfig(n_layer=2, n_head=2, n_embd=32, block_size=16, dropout=0.0, bias=True)


def new_model(seed: int = 0, vocab_size: int = 65, **changes: Any) -> GPT:
    torch.manual_seed(seed)
    model = GPT(dataclasses.replace(CONFIG, **changes), vocab_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.01 * torch.randn_like(parameter)  # biases and norms are not trivial
    return model


def test_exported_weights_come_back_bit_by_bit(tmp_path: Path) -> None:
    saved, loaded = new_model(1), new_model(2)
    export_gpt2_weights(saved, tmp_path)
    load_gpt2_weights(loaded, str(tmp_path))
    for one, two in zip(saved.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(one, two)


def test_names_and_shapes_are_those_of_the_published_gpt2(tmp_path: Path) -> None:
    export_gpt2_weights(new_model(), tmp_path)
    tensors = read_safetensors(tmp_path / "model.safetensors")
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
    export_gpt2_weights(saved, tmp_path)
    assert len(read_safetensors(tmp_path / "model.safetensors")["wte.weight"]) == 1025
    load_gpt2_weights(loaded, str(tmp_path))
    tokens = torch.randint(1025, (2, 9))
    assert torch.equal(saved(tokens), loaded(tokens))
    with_biases = new_model(3, vocab_size=1025, bias=True)
    load_gpt2_weights(with_biases, str(tmp_path))
    torch.testing.assert_close(saved(tokens), with_biases(tokens))


def test_the_prefix_and_the_masks_of_older_files_are_understood(tmp_path: Path) -> None:
    saved, loaded = new_model(1), new_model(2)
    export_gpt2_weights(saved, tmp_path)
    tensors = read_safetensors(tmp_path / "model.safetensors")
    older = {f"transformer.{name}": tensor for name, tensor in tensors.items()}
    older["transformer.h.0.attn.bias"] = torch.ones(1, 1, 16, 16)
    older["lm_head.weight"] = tensors["wte.weight"]
    file = tmp_path / "older.safetensors"
    write_safetensors(file, older, {})
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
    export_gpt2_weights(new_model(), tmp_path)
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


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8],
)
def test_tensors_of_every_kind_survive_the_file(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {
        "matrix": torch.arange(6).reshape(2, 3).to(dtype),
        "transposed": torch.arange(6).reshape(2, 3).to(dtype).t(),
        "scalar": torch.tensor(3).to(dtype),
        "empty": torch.empty((0, 2), dtype=dtype),
    }
    path = tmp_path / "a.safetensors"
    write_safetensors(path, tensors, {"format": "pt"})
    found = read_safetensors(path)
    assert list(found) == list(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == dtype
        assert torch.equal(found[name], tensor)
    (header_bytes,) = (int.from_bytes(path.read_bytes()[:8], "little"),)
    assert (8 + header_bytes) % 8 == 0
    assert json.loads(path.read_bytes()[8 : 8 + header_bytes])["__metadata__"] == {"format": "pt"}


def test_damaged_files_are_named_and_never_read_past_their_end(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {"a": torch.ones(100)}, {})
    whole = path.read_bytes()
    header_bytes = int.from_bytes(whole[:8], "little")
    text = whole[8 : 8 + header_bytes]
    damaged = {
        "not a safetensors file": whole[:5],
        "its header should have": whole[:40],
        "truncated: a should end": whole[:-1],
        "its header is damaged": whole[:8] + b"x" + whole[9:],
        "dtype 'F99'": whole[:8] + text.replace(b"F32", b"F99") + whole[8 + header_bytes :],
        "does not fit": whole[:8] + text.replace(b"[100]", b"[101]") + whole[8 + header_bytes :],
    }
    for words, content in damaged.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=words):
            read_safetensors(path)
