"""Compares the settings that must stay the same in a run, and marks a run as finished.

Another model or dataset does not fit the saved weights; another seed or global batch size would
change the order of the samples. The number of ranks, the learning rate and the rest may change.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, cast

from trainer.checkpoint.durable import write_json
from trainer.config import RunConfig
from trainer.data.meta import read_meta, training_sha256
from trainer.launch.exit_codes import FatalError

DONE_FILE = "done.json"


def identity(config: RunConfig) -> dict[str, Any]:
    """Return the settings that must not change when a run continues, by their full keys."""
    model = dataclasses.asdict(config.model)
    return {
        "seed": config.seed,
        "dataset.name": config.dataset.name,
        "dataset.tokenizer": config.dataset.tokenizer,
        "train.global_batch_size": config.train.global_batch_size,
        **{f"model.{key}": value for key, value in model.items()},
    }


def with_defaults(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Add to `saved` the defaults of model settings that did not exist when it was saved."""
    defaults = identity(RunConfig())
    return {**{k: v for k, v in defaults.items() if k.startswith("model.")}, **saved}


def check_identity(
    saved: Mapping[str, Any], config: RunConfig, where: str, *, has_same_tokens: bool = False
) -> None:
    """Raise a FatalError that names every setting in which `config` differs from `saved`.

    A tokenizer.json may have another path. The checksum of the tokens shows whether it is the same.
    If `has_same_tokens`, the data set may have another name.
    """
    wanted, saved = identity(config), with_defaults(saved)
    if has_same_tokens:
        wanted["dataset.name"] = saved.get("dataset.name")
    tokenizers = [str(values.get("dataset.tokenizer")) for values in (wanted, saved)]
    if all(tokenizer.endswith(".json") for tokenizer in tokenizers):
        wanted["dataset.tokenizer"] = saved["dataset.tokenizer"]
    differing = [
        f"{key}: {wanted.get(key)!r} now, {saved.get(key)!r} in {where}"
        for key in sorted({*saved, *wanted})
        if saved.get(key) != wanted.get(key)
    ]
    if differing:
        raise FatalError(
            f"run {config.run_name!r} was started with other settings; "
            "put them back or choose another run_name: " + "; ".join(differing)
        )


def write_done_marker(config: RunConfig, result: Mapping[str, Any], data_sha256: str) -> None:
    """Record, in a file of the run's folder, that the run has reached `train.max_steps`.

    `data_sha256` is the fingerprint of the training tokens.
    """
    known = {"identity": identity(config), "data_sha256": data_sha256}
    marker = {"max_steps": config.train.max_steps, **result, **known}
    write_json(config.run_dir / DONE_FILE, marker)


def read_done_marker(config: RunConfig) -> dict[str, Any] | None:
    """Return the marker of the finished run.

    The result is None if the run is not finished, or if `train.max_steps` was raised since then.

    Raises:
        FatalError: A run with other settings or data, or a user's own program, has finished under
            this name, or a file is damaged.
    """
    marker = read_marker(config)
    if marker is None:
        return None
    if "identity" not in marker:
        raise FatalError(
            f"{config.run_dir} has a finished run of another kind: of a program of the user's own, "
            "and not of disttrain's trainer. Choose another runName"
        )
    has_same_tokens = _has_same_tokens(marker, config)
    check_identity(marker["identity"], config, DONE_FILE, has_same_tokens=has_same_tokens)
    return marker if marker["max_steps"] >= config.train.max_steps else None


def _has_same_tokens(marker: Mapping[str, Any], config: RunConfig) -> bool:
    """Whether the data set of `config` has the training tokens of the finished run.

    The result is False if its name is the same, for which `check_identity` need not know it.
    """
    if marker["identity"].get("dataset.name") == config.dataset.name:
        return False
    meta = read_meta(config.dataset_dir)
    return meta is not None and training_sha256(meta) == marker.get("data_sha256")


def read_marker(config: RunConfig) -> dict[str, Any] | None:
    """Return the marker of a finished run of any kind, or None if there is none.

    Raises:
        FatalError: The marker is damaged.
    """
    path = config.run_dir / DONE_FILE
    try:
        return cast(dict[str, Any], json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise FatalError(f"{path} is not JSON ({error}); remove it to go on") from error
