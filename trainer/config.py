"""The run configuration: what may be set, with which values, and how it is read.

Imports nothing heavy (no torch), so that the Pulumi program can check a run while it plans.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

PRESETS_DIR = Path(__file__).parent / "presets"
# What nanoGPT calls our keys.
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
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"


class ConfigError(ValueError):
    """The run configuration is wrong; the message lists every problem at once."""

    def __init__(self, problems: Sequence[str]):
        self.problems = tuple(problems)
        super().__init__("\n".join(["the run configuration is not valid:", *self.problems]))


def _option(
    default: Any,
    doc: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    choices: Sequence[str] | None = None,
    pattern: str | None = None,
) -> Any:
    limits = {"at_least": at_least, "above": above, "at_most": at_most, "below": below}
    metadata = {"doc": doc, "limits": limits, "choices": choices, "pattern": pattern}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class DatasetConfig:
    """Where the text comes from and how it becomes tokens."""

    name: str = _option("shakespeare-char", "directory below <data_root>/datasets", pattern=_NAME)
    url: str | None = _option(None, "http(s) address of the text", pattern=r"https?://\S+")
    file: str | None = _option(None, "path of a local text file; wins over url")
    sha256: str | None = _option(None, "checksum of the text", pattern=r"[0-9a-f]{64}")
    size_bytes: int | None = _option(None, "size of the text in bytes", at_least=1)
    tokenizer: str = _option("char", "how text becomes tokens", choices=("char", "gpt2"))


@dataclass(frozen=True)
class ModelConfig:
    """The shape of the GPT; the names are nanoGPT's."""

    n_layer: int = _option(6, "transformer blocks", at_least=1)
    n_head: int = _option(6, "attention heads; must divide n_embd", at_least=1)
    n_embd: int = _option(384, "embedding width", at_least=1)
    block_size: int = _option(256, "context length in tokens", at_least=1)
    dropout: float = _option(0.2, "dropout probability", at_least=0, below=1)
    bias: bool = _option(False, "biases in linear layers and layer norms")
    gelu: str = _option(
        "exact", "activation; GPT-2's own weights want tanh", choices=("exact", "tanh")
    )


@dataclass(frozen=True)
class TrainConfig:
    """The optimisation, and how the processes run it."""

    max_steps: int = _option(5000, "optimiser updates of the whole run", at_least=1)
    global_batch_size: int = _option(64, "sequences per update over all ranks", at_least=1)
    micro_batch_size: int = _option(64, "most sequences of one forward pass", at_least=1)
    learning_rate: float = _option(1e-3, "peak learning rate", above=0)
    min_lr: float = _option(1e-4, "learning rate after the decay", at_least=0)
    warmup_steps: int = _option(100, "updates of linear warm-up", at_least=0)
    decay_steps: int | None = _option(None, "update at which min_lr is reached", at_least=1)
    weight_decay: float = _option(0.1, "AdamW weight decay of matrices", at_least=0)
    beta1: float = _option(0.9, "AdamW beta1", at_least=0, below=1)
    beta2: float = _option(0.99, "AdamW beta2", at_least=0, below=1)
    grad_clip: float = _option(1.0, "largest gradient norm; 0 switches clipping off", at_least=0)
    dtype: str = _option(
        "auto",
        "arithmetic of the forward pass",
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    compile: str = _option("auto", "torch.compile", choices=("auto", "on", "off"))
    parallel: str = _option(
        "ddp",
        "how ranks share the model: a whole copy each, or shards (FSDP2)",
        choices=("ddp", "fsdp"),
    )
    activation_checkpointing: bool = _option(
        False, "compute each block again in the backward pass: less memory, more time"
    )
    backend: str = _option("auto", "collectives", choices=("auto", "gloo", "nccl"))
    device: str = _option("auto", "where to compute", choices=("auto", "cpu", "cuda"))
    timeout_seconds: int = _option(60, "longest wait inside one collective", at_least=5)
    rendezvous_timeout_seconds: int = _option(600, "longest wait for DNS and peers", at_least=5)
    initial_weights: str | None = _option(
        None, "GPT-2 weights to start from: a safetensors file or its directory", pattern=r".+"
    )
    max_restarts: int = _option(
        10, "restarts in place without a newer checkpoint between them", at_least=0
    )


@dataclass(frozen=True)
class EvalConfig:
    """The exact pass over the validation split."""

    interval: int = _option(250, "updates between two passes; 0: only at the end", at_least=0)
    batch_size: int = _option(64, "sequences of one forward pass", at_least=1)


@dataclass(frozen=True)
class CheckpointConfig:
    """When a checkpoint is written and how many stay."""

    interval: int = _option(
        250, "most updates that a kill can cost; 0: saved only at the end", at_least=0
    )
    keep_last: int = _option(2, "newest complete checkpoints that stay", at_least=1)
    keep_best: bool = _option(
        True, "save at each new lowest validation loss, and let that checkpoint stay too"
    )
    asynchronous: bool = _option(True, "write while training goes on, at most one at a time")

    @property
    def every(self) -> int:
        """Updates between two checkpoints; 0: only at the end.

        Those written in the background come a fifth early: a kill during the write costs the
        updates since the one before, so there has to be room for those made meanwhile.
        """
        return self.interval - (self.interval // 5 if self.asynchronous else 0)

    def describe(self) -> str:
        """When they are made and what a kill costs, for people."""
        if not self.interval:
            best = " and at each new lowest validation loss" if self.keep_best else ""
            return f"checkpoints only at the end{best}; a kill can cost all steps"
        where = ", written in the background" if self.asynchronous else ""
        return f"a checkpoint every {self.every} steps{where}; a kill costs at most {self.interval}"


@dataclass(frozen=True)
class LogConfig:
    """When a line is logged."""

    interval: int = _option(10, "updates between two lines", at_least=1)


@dataclass(frozen=True)
class RunConfig:
    """Everything that defines a run, and nothing of the machine it runs on."""

    run_name: str = _option("shakespeare-char", "directory below <data_root>/runs", pattern=_NAME)
    seed: int = _option(1337, "initial weights, sample order, dropout", at_least=0, below=2**31)
    data_root: str = _option("/data", "where datasets and runs live", pattern=r".+")
    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    log: LogConfig = field(default_factory=LogConfig)

    @staticmethod
    def from_mapping(mapping: Mapping[str, Any]) -> RunConfig:
        """Build a checked configuration from nested mappings, as YAML gives them.

        Raises:
            ConfigError (a ValueError): lists every problem with key, value and what is allowed.
        """
        problems: list[str] = []
        config = cast(RunConfig, _read(RunConfig, mapping, "", problems))
        if not problems:
            problems = _contradictions(config)
        if problems:
            raise ConfigError(problems)
        return config

    def to_mapping(self) -> dict[str, Any]:
        """Nested plain dicts, without unset options; `from_mapping` gives an equal config back."""
        return cast(dict[str, Any], _without_none(dataclasses.asdict(self)))

    @property
    def dataset_dir(self) -> Path:
        """`<data_root>/datasets/<dataset.name>`."""
        return Path(self.data_root) / "datasets" / self.dataset.name

    @property
    def run_dir(self) -> Path:
        """`<data_root>/runs/<run_name>`."""
        return Path(self.data_root) / "runs" / self.run_name


def preset_names() -> list[str]:
    """Names that `preset_path` knows."""
    return sorted(path.stem for path in PRESETS_DIR.glob("*.yaml"))


def preset_path(name: str) -> Path:
    """The file of a preset. Raises ConfigError naming the closest ones."""
    if name not in preset_names():
        hint = _did_you_mean(difflib.get_close_matches(name, preset_names(), n=1))
        raise ConfigError(
            [f"--preset: {name!r} is unknown; {hint}allowed: {', '.join(preset_names())}"]
        )
    return PRESETS_DIR / f"{name}.yaml"


def load_config(config: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a YAML file (or a preset's name) and apply `--section.key=value` overrides.

    Raises:
        ConfigError: the file cannot be read, an override is malformed, or a value is wrong.
    """
    mapping, problems = load_mapping(config), list[str]()
    for override in overrides:
        match = re.fullmatch(r"--([a-z_0-9]+(?:\.[a-z_0-9]+)*)=(.*)", override, re.DOTALL)
        if match is None:
            problems.append(f"{override!r}: an override is written --section.key=value")
            continue
        *sections, key = match[1].split(".")
        target: dict[str, Any] | None = mapping
        for section in sections:
            target = _section(target, section)
        if target is None:
            problems.append(f"{match[1]}: {'.'.join(sections)} is not a section")
            continue
        try:
            target[key] = yaml.safe_load(match[2])
        except yaml.YAMLError as error:
            problems.append(f"{match[1]}: {match[2]!r} is not YAML: {error}")
    try:
        result = RunConfig.from_mapping(mapping)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from None
    if problems:
        raise ConfigError(problems)
    return result


def _section(mapping: dict[str, Any] | None, name: str) -> dict[str, Any] | None:
    """The mapping at `name`, made where there is none; None where something else is there."""
    if mapping is None:
        return None
    if mapping.get(name) is None:
        mapping[name] = {}
    inner: object = mapping[name]
    return cast(dict[str, Any], inner) if isinstance(inner, dict) else None


def load_mapping(config: str | Path) -> dict[str, Any]:
    """The unchecked content of a YAML file, or of the preset with that name."""
    path = Path(config)
    preset = PRESETS_DIR / f"{config}.yaml"
    if not path.exists() and preset.exists():
        path = preset
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        hint = _did_you_mean(difflib.get_close_matches(str(config), preset_names(), n=1))
        raise ConfigError(
            [
                f"--config {config}: cannot be read ({error}); {hint}"
                f"allowed: a YAML file, or one of {', '.join(preset_names())}"
            ]
        ) from None
    except yaml.YAMLError as error:
        raise ConfigError([f"--config {config}: not YAML: {error}"]) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError([f"--config {config}: the file must hold a mapping of keys"])
    return cast(dict[str, Any], content)


def dump_config(config: RunConfig) -> str:
    """The configuration as YAML, as kept in the run's directory."""
    return yaml.safe_dump(config.to_mapping(), sort_keys=False)


def _contradictions(config: RunConfig) -> list[str]:
    """Problems between values that are each allowed."""
    found: list[str] = []
    model, train, dataset = config.model, config.train, config.dataset
    if model.n_embd % model.n_head:
        found.append(f"model.n_head: {model.n_head} must divide model.n_embd {model.n_embd}")
    if train.min_lr > train.learning_rate:
        found.append(
            f"train.min_lr: {train.min_lr} must be at most train.learning_rate "
            f"{train.learning_rate}"
        )
    if train.warmup_steps > (horizon := train.decay_steps or train.max_steps):
        found.append(
            f"train.warmup_steps: {train.warmup_steps} must be at most "
            f"{'train.decay_steps' if train.decay_steps else 'train.max_steps'} {horizon}"
        )
    if dataset.url is None and dataset.file is None:
        found.append("dataset.url: not set; allowed: an http(s) address here or dataset.file")
    if train.device == "cpu" and train.backend == "nccl":
        found.append("train.backend: 'nccl' needs train.device cuda; allowed on cpu: auto, gloo")
    if train.device == "cpu" and train.dtype == "float16":
        found.append("train.dtype: 'float16' needs a GPU; allowed on cpu: auto, float32, bfloat16")
    return found


def _read(cls: type[Any], mapping: object, prefix: str, problems: list[str]) -> Any:
    """Fill dataclass `cls` from `mapping`, adding to `problems` instead of raising."""
    if not isinstance(mapping, Mapping):
        problems.append(f"{prefix.rstrip('.') or 'run config'}: {mapping!r} must be a mapping")
        return cls()
    given = cast(Mapping[Any, Any], mapping)
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in fields:
            hint = _did_you_mean(_closest_keys(prefix, str(key), list(fields)))
            problems.append(
                f"{prefix}{key}: unknown key with value {value!r}; {hint}allowed: "
                + ", ".join(fields)
            )
        elif dataclasses.is_dataclass(hints[key]):
            given_section: object = dict[str, Any]() if value is None else value
            values[key] = _read(hints[key], given_section, f"{prefix}{key}.", problems)
        else:
            values[key] = _check(prefix + key, value, hints[key], fields[key].metadata, problems)
    return cls(**values)


def _check(
    name: str, value: object, hint: Any, metadata: Mapping[str, Any], problems: list[str]
) -> Any:
    """Return `value` as the type that `hint` asks for, or add a problem."""
    optional = isinstance(hint, types.UnionType)
    wanted: type[Any] = typing.get_args(hint)[0] if optional else hint
    if optional and (value is None or value == ""):
        return None
    if wanted is float:
        value = _as_float(value)
    if isinstance(value, bool) and "on" in (metadata["choices"] or ()):
        value = "on" if value else "off"  # YAML 1.1 reads a bare on and off as true and false
    kind_fits = isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
    if not kind_fits or not _within(value, metadata):
        hint = _did_you_mean(_closest_values(value, wanted, metadata))
        problems.append(
            f"{name}: {value!r} is not allowed; {hint}allowed: {_allowed(wanted, metadata)}"
        )
    return value


def _did_you_mean(candidates: Sequence[str]) -> str:
    return f"did you mean {' or '.join(candidates)}? " if candidates else ""


def _closest_keys(prefix: str, key: str, siblings: Sequence[str]) -> list[str]:
    """Full names like `key`: in its section, else with the same name in another, else like it."""
    if near := difflib.get_close_matches(key, siblings, n=1):
        return [prefix + near[0]]
    by_name: dict[str, list[str]] = {}
    for section, hint in typing.get_type_hints(RunConfig).items():
        if dataclasses.is_dataclass(hint):
            for inner in dataclasses.fields(hint):
                by_name.setdefault(inner.name, []).append(f"{section}.{inner.name}")
        else:
            by_name.setdefault(section, []).append(section)
    if key in by_name:
        return by_name[key]
    if key in _NANOGPT_KEYS:
        return [_NANOGPT_KEYS[key]]
    near = difflib.get_close_matches(key, by_name, n=1, cutoff=0.75)
    return by_name[near[0]] if near else []


def _closest_values(value: object, wanted: type[Any], metadata: Mapping[str, Any]) -> list[str]:
    """What may have been meant by a value of the wrong type or outside the choices."""
    if metadata["choices"] is not None:
        text = str(value).lower()
        text = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(text, text)
        return difflib.get_close_matches(text, cast(Sequence[str], metadata["choices"]), n=1)
    if wanted is bool and str(value).lower() in ("yes", "on", "1", "true"):
        return ["true"]
    if wanted is bool and str(value).lower() in ("no", "off", "0", "false"):
        return ["false"]
    if wanted is int and isinstance(value, (float, str)):
        number = _as_float(str(value).replace(",", "").replace("_", ""))
        if isinstance(number, float) and math.isfinite(number) and _within(round(number), metadata):
            return [str(round(number))]
    return []


def _as_float(value: object) -> object:
    """Whole numbers, and 1e-3, which YAML 1.1 reads as a string, are floats too."""
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return value
    return value


def _within(value: Any, metadata: Mapping[str, Any]) -> bool:
    limits, choices, pattern = metadata["limits"], metadata["choices"], metadata["pattern"]
    return not (
        value in (math.inf, -math.inf)
        or value != value  # NaN
        or (choices is not None and value not in choices)
        or (pattern is not None and re.fullmatch(pattern, value) is None)
        or (limits["at_least"] is not None and value < limits["at_least"])
        or (limits["above"] is not None and value <= limits["above"])
        or (limits["at_most"] is not None and value > limits["at_most"])
        or (limits["below"] is not None and value >= limits["below"])
    )


def _allowed(wanted: type[Any], metadata: Mapping[str, Any]) -> str:
    """What an option accepts, in words."""
    if metadata["choices"] is not None:
        return ", ".join(metadata["choices"])
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    signs = {"at_least": ">=", "above": ">", "at_most": "<=", "below": "<"}
    limits = [
        f"{signs[kind]} {limit:g}" if limit < 1e6 else f"{signs[kind]} {limit}"
        for kind, limit in metadata["limits"].items()
        if limit is not None
    ]
    text = " ".join([words[wanted], " and ".join(limits)]).strip()
    if metadata["pattern"] is not None:
        text += f" like {metadata['pattern']}"
    return f"{text} ({metadata['doc']})"


def _without_none(value: object) -> object:
    if isinstance(value, dict):
        items = cast(dict[str, object], value).items()
        return {key: _without_none(item) for key, item in items if item is not None}
    return value
