"""GPT-2 weights as published (transformers' names and shapes), in and out.

A directory holds `model.safetensors` and `config.json`, as `from_pretrained` of transformers wants
it. The published dense layers are stored input x output, ours (torch's) output x input.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

import torch

from trainer.durable import write_json
from trainer.exit_codes import FatalError
from trainer.model import GPT
from trainer.safetensors import read_safetensors, write_safetensors

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
_KEY = "train.initial_weights"
_TRANSPOSED = re.compile(r"h\.\d+\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight")
_IGNORED = re.compile(r"h\.\d+\.attn\.(masked_)?bias|lm_head\.weight")  # masks; the tied head
# transformers' names of the two activations (its ACT2FN).
_GELU = {"exact": "gelu", "tanh": "gelu_new"}
_SAME_GELU = {"gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu": "exact"}


def load_gpt2_weights(model: GPT, source: str) -> None:
    """Fill `model` from a safetensors file, or the directory that holds one.

    Where the model has no biases, those of the file must be zero (an export from such a model).

    Raises:
        FatalError: the file cannot be read or is of another shape; every difference is named.
    """
    path = Path(source) / WEIGHTS_FILE if Path(source).is_dir() else Path(source)
    try:
        found = read_safetensors(path)
        beside = path.with_name(CONFIG_FILE)
        described = json.loads(beside.read_text()) if beside.is_file() else {}
    except (OSError, ValueError) as error:
        raise FatalError(f"{_KEY}: {source!r} cannot be read: {error}") from error
    given = {name.removeprefix("transformer."): tensor for name, tensor in found.items()}
    given = {name: t for name, t in given.items() if not _IGNORED.fullmatch(name)}
    problems = _contradictions(model, described)
    own = dict(model.named_parameters())
    for name, parameter in own.items():
        published = _published_name(name)
        tensor = given.pop(published, None)
        if tensor is None:
            problems.append(f"{published} is missing")
            continue
        if _TRANSPOSED.fullmatch(published) and tensor.dim() == 2:
            tensor = tensor.t()
        wanted = list(parameter.shape)
        if name == "wte.weight":
            wanted[0] = model.vocab_size  # the padding has no counterpart
        if list(tensor.shape) != wanted:
            problems.append(f"{published} has the shape {list(tensor.shape)}, needed: {wanted}")
            continue
        with torch.no_grad():
            parameter[: len(tensor)].copy_(tensor)
    without_use = [n for n, t in given.items() if not (n.endswith("bias") and not t.any())]
    if without_use:
        problems.append(
            f"{len(without_use)} tensors have no place in this model (model.bias, model.n_layer?): "
            + ", ".join(sorted(without_use)[:4])
        )
    if problems:
        shown = problems[:8] + [f"and {len(problems) - 8} more"] * (len(problems) > 8)
        raise FatalError(f"{_KEY}: {source!r} does not fit the model: " + "; ".join(shown))


def export_gpt2_weights(model: GPT, directory: Path) -> None:
    """Write `directory` such that transformers' GPT2LMHeadModel.from_pretrained reads it.

    Biases that the model does not have are written as zeros. Raises FatalError.
    """
    config = model.config
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in model.state_dict().items():
        published = _published_name(name)
        tensor = parameter.float()
        if name == "wte.weight":
            tensor = tensor[: model.vocab_size]
        tensors[published] = tensor.t() if _TRANSPOSED.fullmatch(published) else tensor
        if not config.bias and published.endswith("weight") and published[:2] not in ("wt", "wp"):
            width = tensors[published].shape[-1]
            tensors[published.removesuffix("weight") + "bias"] = torch.zeros(width)
    described = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": _GELU[config.gelu],
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_embd": config.n_embd,
        "n_positions": config.block_size,
        "n_ctx": config.block_size,
        "vocab_size": model.vocab_size,
        "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_safetensors(directory / WEIGHTS_FILE, tensors, {"format": "pt"})
        write_json(directory / CONFIG_FILE, described)
    except OSError as error:
        raise FatalError(f"--output {directory}: cannot be written: {error}") from error


def _published_name(name: str) -> str:
    return re.sub(r"^blocks\.", "h.", name)


def _contradictions(model: GPT, described: object) -> list[str]:
    """What config.json says that the tensors do not show."""
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
