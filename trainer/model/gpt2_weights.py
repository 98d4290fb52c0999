"""Reads and writes GPT-2 weights in the published format, with transformers' names and shapes.

A directory holds `model.safetensors`, or several files with an index, and `config.json`, as
transformers' `from_pretrained` requires. The published dense layers have the shape input x output.
Those of this model have torch's shape, output x input.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from trainer.checkpoint.durable import write_json
from trainer.config import ModelConfig
from trainer.launch.exit_codes import FatalError
from trainer.model.gpt import GPT
from trainer.model.weight_files import WeightFiles, write_weights
from trainer.parallel.local_part import local_rows

LARGEST_FILE_BYTES = 5_000_000_000  # transformers splits weights at the same size.
_FLOAT_BYTES = 4
CONFIG_FILE = "config.json"
_KEY = "train.initial_weights"
_TRANSPOSED = re.compile(r"h\.\d+\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight")
# These are the causal masks, and the head, whose weights are those of wte.
_IGNORED = re.compile(r"h\.\d+\.attn\.(masked_)?bias|lm_head\.weight")
# Here are transformers' names of the two activations (its ACT2FN).
_GELU = {"exact": "gelu", "tanh": "gelu_new"}
_SAME_GELU = {"gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu": "exact"}


def load_gpt2_weights(model: GPT, source: str) -> None:
    """Fill `model`, or this rank's shards of it, from published weights.

    `source` is a safetensors file, an index of several such files, or the directory that holds one
    of these. If the model has no biases, those in the file must be zero, as in an export of such a
    model.

    Raises:
        FatalError: A file cannot be read, or does not fit the model. The text names up to 8
            differences.
    """
    path = Path(source)
    beside = path / CONFIG_FILE if path.is_dir() else path.with_name(CONFIG_FILE)
    try:
        described = json.loads(beside.read_text()) if beside.is_file() else {}
        with WeightFiles(path) as files:
            problems = [*_contradictions(model, described), *_misfits(model, files)]
            if not problems:
                for name, parameter in model.named_parameters():
                    _fill(model, name, parameter, files)
    except (OSError, ValueError) as error:
        raise FatalError(f"{_KEY}: {source!r} cannot be read: {error}") from error
    if problems:
        shown = problems[:8] + [f"and {len(problems) - 8} more"] * (len(problems) > 8)
        raise FatalError(f"{_KEY}: {source!r} does not fit the model: " + "; ".join(shown))


def _misfits(model: GPT, files: WeightFiles) -> list[str]:
    """List how the tensors of the files differ from the tensors that the model needs."""
    given = {
        short: (name, shape)
        for name, shape in files.shapes().items()
        if not _IGNORED.fullmatch(short := name.removeprefix("transformer."))
    }
    problems: list[str] = []
    for name, parameter in model.named_parameters():
        published, wanted = _published_name(name), list(parameter.shape)
        if published not in given:
            problems.append(f"{published} is missing")
            continue
        if name == "wte.weight":
            wanted[0] = model.vocab_size  # The padding rows are not in the file.
        if _TRANSPOSED.fullmatch(published):
            wanted.reverse()
        _, shape = given.pop(published)
        if shape != wanted:
            problems.append(f"{published} has the shape {shape}, needed: {wanted}")
    without_use = [
        short
        for short, (name, _) in given.items()
        if not (short.endswith("bias") and not files.whole(name).any())
    ]
    if without_use:
        problems.append(
            f"{len(without_use)} tensors have no place in this model (model.bias, model.n_layer?): "
            + ", ".join(sorted(without_use)[:4])
        )
    return problems


def _fill(model: GPT, name: str, parameter: torch.Tensor, files: WeightFiles) -> None:
    """Read a parameter's rows that are on this rank; rows that pad the vocabulary become 0."""
    published = _published_name(name)
    given = published if published in files.shapes() else f"transformer.{published}"
    rows, first = local_rows(parameter)
    last = first + len(rows)
    if name == "wte.weight":
        last = max(first, min(last, model.vocab_size))
        rows[last - first :].zero_()
    if _TRANSPOSED.fullmatch(published):
        rows.copy_(files.columns(given, first, last).t())
    elif last > first:
        rows[: last - first].copy_(files.rows(given, first, last))


def export_gpt2_weights(
    config: ModelConfig,
    vocab_size: int,
    shapes: Mapping[str, Sequence[int]],
    tensor: Callable[[str], torch.Tensor],
    directory: Path,
    largest_file_bytes: int = LARGEST_FILE_BYTES,
) -> None:
    """Write weights to `directory`, so that transformers' GPT2LMHeadModel.from_pretrained reads it.

    Biases that the model does not have are written as zeros.

    Args:
        config: The model's settings.
        vocab_size: The number of different tokens, without padding.
        shapes: The shapes of the parameters, by the names of this model.
        tensor: Returns a whole parameter by the name in this model. It is called for one parameter
            after the other.
        directory: The directory to write.
        largest_file_bytes: Larger weights are written to several files with an index.

    Raises:
        FatalError: The directory cannot be written.
    """
    ours: dict[str, str | None] = {}  # Keys are published names. None is a bias of zeros.
    widths: dict[str, list[int]] = {}
    for name, shape in shapes.items():
        published, size = _published_name(name), list(shape)
        if name == "wte.weight":
            size[0] = vocab_size
        if _TRANSPOSED.fullmatch(published):
            size.reverse()
        ours[published], widths[published] = name, size
        if not config.bias and published.endswith("weight") and published[:2] not in ("wt", "wp"):
            bias = published.removesuffix("weight") + "bias"
            ours[bias], widths[bias] = None, size[-1:]

    def published_tensor(published: str) -> torch.Tensor:
        name = ours[published]
        if name is None:
            return torch.zeros(widths[published])
        values = tensor(name).float()
        if name == "wte.weight":
            values = values[:vocab_size]
        return values.t() if _TRANSPOSED.fullmatch(published) else values

    described = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": _GELU[config.gelu],
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_embd": config.n_embd,
        "n_positions": config.block_size,
        "n_ctx": config.block_size,
        "vocab_size": vocab_size,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
    sizes = {name: math.prod(size) * _FLOAT_BYTES for name, size in widths.items()}
    try:
        write_weights(directory, sizes, published_tensor, largest_file_bytes)
        write_json(directory / CONFIG_FILE, described)
    except OSError as error:
        raise FatalError(f"--output {directory}: cannot be written: {error}") from error


def _published_name(name: str) -> str:
    return re.sub(r"^blocks\.", "h.", name)


def _contradictions(model: GPT, described: object) -> list[str]:
    """List where config.json contradicts settings that the tensors' shapes do not show."""
    if not isinstance(described, dict):
        return [f"{CONFIG_FILE} does not hold a mapping"]
    values, found = cast(dict[str, Any], described), list[str]()
    n_head, activation = values.get("n_head"), values.get("activation_function")
    if n_head is not None and n_head != model.config.n_head:
        found.append(f"model.n_head is {model.config.n_head}, {CONFIG_FILE} says {n_head}")
    if activation is not None and _SAME_GELU.get(activation) != model.config.gelu:
        wanted = _SAME_GELU.get(activation, "none that this model has")
        found.append(
            f"model.gelu is {model.config.gelu}, {CONFIG_FILE} says {activation} (here: {wanted})"
        )
    return found
