"""The configuration of a whole run: its sections, and the rules between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from trainer.config.checkpoint import CheckpointConfig
from trainer.config.dataset import DatasetConfig
from trainer.config.model import ModelConfig
from trainer.config.option import ANY_LINE, NAME, option
from trainer.config.problem import LOGIN, ConfigError, problem_text
from trainer.config.program import LAUNCH_OPTIONS, ProgramConfig, program_problems
from trainer.config.read import read_section
from trainer.config.train import EvalConfig, LogConfig, TrainConfig


@dataclass(frozen=True)
class RunConfig:
    """All settings of a run. None of them is specific to a machine."""

    run_name: str = option("shakespeare-char", "directory below <data_root>/runs", form=NAME)
    seed: int = option(1337, "initial weights, sample order, dropout", at_least=0, below=2**31)
    data_root: str = option("/data", "where datasets and runs live", form=ANY_LINE)
    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    log: LogConfig = field(default_factory=LogConfig)
    program: ProgramConfig = field(default_factory=ProgramConfig)

    @staticmethod
    def from_mapping(mapping: Mapping[str, Any]) -> RunConfig:
        """Build a checked configuration from nested mappings, as YAML gives them.

        Raises:
            ConfigError (a ValueError): A value is wrong. The message lists every problem, with the
                key, the value and what is allowed.
        """
        problems: list[str] = []
        config = cast(RunConfig, read_section(RunConfig, mapping, "", problems))
        if not problems:
            problems = _contradictions(config)
        if problems:
            raise ConfigError(problems)
        return config

    def to_mapping(self) -> dict[str, Any]:
        """Return nested plain dicts without unset options.

        `from_mapping` makes an equal configuration of them. For a run of the user's own program
        they hold only the options that concern its start.
        """
        everything = cast(dict[str, Any], _without_none(dataclasses.asdict(self)))
        if not self.has_program:
            return {key: value for key, value in everything.items() if key != "program"}
        launch = {key: everything["train"][key] for key in LAUNCH_OPTIONS}
        names = {key: everything[key] for key in ("run_name", "data_root")}
        return {**names, "train": launch, "program": everything["program"]}

    @property
    def tokens_per_update(self) -> int:
        """The number of tokens in the global batch, over all ranks."""
        return self.train.global_batch_size * self.model.block_size

    @property
    def has_program(self) -> bool:
        """Whether the user's own program replaces disttrain's trainer."""
        return bool(self.program.command)

    @property
    def dataset_dir(self) -> Path:
        """`<data_root>/datasets/<dataset.name>`."""
        return Path(self.data_root) / "datasets" / self.dataset.name

    @property
    def run_dir(self) -> Path:
        """`<data_root>/runs/<run_name>`."""
        return Path(self.data_root) / "runs" / self.run_name

    @property
    def program_dir(self) -> Path:
        """`<run_dir>/program`, where the user's own program may keep its checkpoints."""
        return self.run_dir / "program"


def _contradictions(config: RunConfig) -> list[str]:
    """List contradictions between values that are allowed by themselves."""
    if config.has_program:
        return program_problems(config.program, config.program_dir)
    found: list[str] = []
    model, train = config.model, config.train
    if model.n_embd % model.n_head:
        reason = f"it does not divide model.n_embd, which is {model.n_embd}"
        remedy = "Set a number of heads that divides it, or another width"
        found.append(problem_text("model.n_head", model.n_head, reason, remedy))
    if train.min_lr > train.learning_rate:
        reason = f"it is above train.learning_rate, which is {train.learning_rate}"
        remedy = "Set at most the learning rate, from which it falls to this one"
        found.append(problem_text("train.min_lr", train.min_lr, reason, remedy))
    if train.warmup_steps > (horizon := train.decay_steps or train.max_steps):
        name = "train.decay_steps" if train.decay_steps else "train.max_steps"
        reason = f"it is above {name}, which is {horizon}"
        remedy = f"Set at most {horizon}, or a larger {name}"
        found.append(problem_text("train.warmup_steps", train.warmup_steps, reason, remedy))
    found += _dataset_problems(config.dataset)
    if train.device == "cpu" and train.backend == "nccl":
        reason, remedy = "it needs GPUs, and train.device is cpu", "Set auto or gloo"
        found.append(problem_text("train.backend", "nccl", reason, remedy))
    if train.device == "cpu" and train.dtype == "float16":
        reason = "it needs a GPU, and train.device is cpu"
        found.append(
            problem_text("train.dtype", "float16", reason, "Set auto, float32 or bfloat16")
        )
    return found


def _dataset_problems(dataset: DatasetConfig) -> list[str]:
    found: list[str] = []
    if dataset.url is None and dataset.file is None and not dataset.files:
        found.append(
            "dataset.url: not set, and so there is no text to train on. Set an http(s) address "
            "here, several in dataset.files, or a file or folder in dataset.file."
        )
    if dataset.url is not None and dataset.files and dataset.file is None:
        urls = [source.url for source in dataset.files]
        found.append(
            problem_text("dataset.files", urls, "dataset.url is set too", "Remove one of the two")
        )
    if dataset.files and (dataset.sha256 or dataset.size_bytes) and dataset.file is None:
        key = "sha256" if dataset.sha256 else "size_bytes"
        reason = "it is of one text, and dataset.files has several"
        remedy = "Give each of them its own sha256 and size_bytes instead"
        found.append(problem_text(f"dataset.{key}", getattr(dataset, key), reason, remedy))
    for place, source in enumerate(dataset.files):
        if not source.url:
            found.append(
                f"dataset.files[{place}].url: not set, and each file needs one. Set the http(s) "
                "address of the file."
            )
    urls = [("dataset.url", dataset.url or "")]
    urls += [(f"dataset.files[{n}].url", source.url) for n, source in enumerate(dataset.files)]
    for key, url in urls:
        if LOGIN.search(url):
            reason = (
                "a download sends no user and password, and run.yaml on the volume would hold them"
            )
            remedy = "Use an address without them, or download the file and set dataset.file"
            found.append(problem_text(key, url, reason, remedy))
    if dataset.document_separator is not None and dataset.format not in ("auto", "text"):
        reason = f"it is for plain text, and dataset.format is {dataset.format}"
        separator = dataset.document_separator
        found.append(
            problem_text("dataset.document_separator", separator, reason, "Remove one of the two")
        )
    if dataset.end_of_text is not None and dataset.tokenizer in ("char", "gpt2"):
        reason = f"it is for a tokenizer.json; the tokenizer {dataset.tokenizer} has its own"
        found.append(problem_text("dataset.end_of_text", dataset.end_of_text, reason, "Remove it"))
    return found


def _without_none(value: object) -> object:
    """Return the value without unset options and empty lists."""
    if isinstance(value, dict):
        items = cast(dict[str, object], value).items()
        return {key: _without_none(item) for key, item in items if item not in (None, ())}
    if isinstance(value, tuple):
        return [_without_none(item) for item in cast(tuple[object, ...], value)]
    return value
