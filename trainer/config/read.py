"""Fills the sections of a run from nested mappings, and collects all problems."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, cast

from trainer.config.limits import fault, remedy
from trainer.config.problem import did_you_mean, problem_text

# nanoGPT's names of options, and the names here.
_NANOGPT_KEYS = {
    "max_iters": "train.max_steps",
    "batch_size": "train.global_batch_size",
    "lr_decay_iters": "train.decay_steps",
    "warmup_iters": "train.warmup_steps",
    "eval_interval": "eval.interval",
    "log_interval": "log.interval",
    "init_from": "train.initial_weights",
    "out_dir": "run_name",
}


def read_section(
    cls: type[Any],
    mapping: object,
    prefix: str,
    problems: list[str],
    root: type[Any] | None = None,
) -> Any:
    """Fill dataclass `cls` from `mapping`, adding to `problems` instead of raising.

    Messages put `prefix` before the names of its keys. `root` is the dataclass of the whole
    configuration, in which hints look for keys that are in the wrong section.
    """
    if not isinstance(mapping, Mapping):
        name, reason = prefix.rstrip(".") or "run config", "it is not a mapping of keys"
        problems.append(problem_text(name, mapping, reason, f"Its keys are {_keys(cls)}"))
        return cls()
    given = cast(Mapping[Any, Any], mapping)
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in fields:
            hint = did_you_mean(_closest_keys(prefix, str(key), list(fields), root or cls))
            reason = f"there is no such key{hint}"
            known = f"The keys here are {_keys(cls)}"
            problems.append(problem_text(f"{prefix}{key}", value, reason, known))
        elif dataclasses.is_dataclass(hints[key]):
            given_section: object = dict[str, Any]() if value is None else value
            values[key] = read_section(
                hints[key], given_section, f"{prefix}{key}.", problems, root or cls
            )
        elif typing.get_origin(hints[key]) is tuple:
            item = typing.get_args(hints[key])[0]
            values[key] = _read_list(item, value, prefix + key, problems, root or cls)
        else:
            values[key] = _check(prefix + key, value, hints[key], fields[key].metadata, problems)
    return cls(**values)


def _read_list(
    cls: type[Any], value: object, name: str, problems: list[str], root: type[Any]
) -> tuple[Any, ...]:
    """Read a list of sections, such as `dataset.files`, or of texts."""
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str):
        inside = "texts" if cls is str else f"mappings with the keys {_keys(cls)}"
        known = f"Write a list of {inside}"
        problems.append(problem_text(name, value, "it is not a list", known))
        return ()
    items = cast(Sequence[object], value)
    if cls is str:
        return _texts(items, name, problems)
    return tuple(
        read_section(cls, item, f"{name}[{place}].", problems, root)
        for place, item in enumerate(items)
    )


def _texts(items: Sequence[object], name: str, problems: list[str]) -> tuple[str, ...]:
    """Read a list of texts, such as `program.command`. Numbers become their texts."""
    for place, item in enumerate(items):
        if isinstance(item, bool) or not isinstance(item, (str, int, float)):
            what = "Write one text, in quotation marks"
            problems.append(problem_text(f"{name}[{place}]", item, "it is not a text", what))
    return tuple(str(item) for item in items)


def _check(
    name: str, value: object, hint: Any, metadata: Mapping[str, Any], problems: list[str]
) -> Any:
    """Return `value` as the type that `hint` asks for, or add a problem."""
    optional = isinstance(hint, types.UnionType)
    wanted: type[Any] = typing.get_args(hint)[0] if optional else hint
    if optional and (value is None or value == ""):
        return None
    given = value
    if wanted is float:
        value = _as_float(value)
    if isinstance(value, bool) and "on" in (metadata["choices"] or ()):
        value = "on" if value else "off"  # YAML 1.1 reads a bare on and off as true and false
    if reason := fault(value, wanted, metadata):
        hint = did_you_mean(_closest_values(value, wanted, metadata))
        what = f"{remedy(wanted, metadata)}{hint}. The option means: {metadata['doc']}"
        problems.append(problem_text(name, given if wanted is float else value, reason, what))
    return value


def _keys(cls: type[Any]) -> str:
    return ", ".join(f.name for f in dataclasses.fields(cls))


def _closest_keys(prefix: str, key: str, siblings: Sequence[str], root: type[Any]) -> list[str]:
    """Find the full names of keys that `key` may be meant for.

    These are the same name elsewhere, else a similar name in its section, else nanoGPT's name, else
    a similar name elsewhere.
    """
    by_name: dict[str, list[str]] = {}
    for section, hint in typing.get_type_hints(root).items():
        if dataclasses.is_dataclass(hint):
            for inner in dataclasses.fields(hint):
                by_name.setdefault(inner.name, []).append(f"{section}.{inner.name}")
        else:
            by_name.setdefault(section, []).append(section)
    if key in by_name:
        return by_name[key]
    if near := difflib.get_close_matches(key, siblings, n=1):
        return [prefix + near[0]]
    if key in _NANOGPT_KEYS:
        return [_NANOGPT_KEYS[key]]
    near = difflib.get_close_matches(key, by_name, n=1, cutoff=0.75)
    return by_name[near[0]] if near else []


def _closest_values(value: object, wanted: type[Any], metadata: Mapping[str, Any]) -> list[str]:
    """Find what a value of the wrong type, or outside the choices, may be meant for."""
    if value is None or isinstance(value, (Mapping, list)):
        return []
    if known := cast(Sequence[str], metadata["choices"] or metadata["likely"]):
        text = str(value).lower()
        text = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(text, text)
        return difflib.get_close_matches(text, known, n=1)
    if wanted is bool and str(value).lower() in ("yes", "on", "1", "true"):
        return ["true"]
    if wanted is bool and str(value).lower() in ("no", "off", "0", "false"):
        return ["false"]
    if wanted is int and isinstance(value, (float, str)):
        number = _as_float(str(value).replace(",", "").replace("_", ""))
        if isinstance(number, float) and math.isfinite(number):
            nearest = round(number)
            return [] if fault(nearest, int, metadata) else [str(nearest)]
    return []


def _as_float(value: object) -> object:
    """Turn whole numbers, and texts such as 1e-3, into floats. YAML 1.1 reads 1e-3 as a text."""
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return value
    return value
