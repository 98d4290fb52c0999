"""Builds the trainer's run configuration from a preset and the stack's settings."""

import dataclasses
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from infra.names import DATA_MOUNT
from infra.settings.reader import Reader
from trainer.config import ConfigError, RunConfig, load_mapping, preset_names
from trainer.config.problem import problem_text

SEEN_BY_ALL = "everybody who may read the run's ConfigMap or see its pods would see it there"
RUN_SECTIONS = ("model", "train", "eval", "checkpoint", "log")
_OWN_KEYS = {  # keys of the run configuration that are set by other settings of the stack
    "run_name": "runName",
    "data_root": "dataRoot",
    "dataset": "datasetName, datasetUrl, datasetFile, datasetFiles, datasetSha256, "
    "datasetTokenizer and datasetOptions",
    "program": "program",
}
_KEYS = f"The keys here are {', '.join(('seed', *RUN_SECTIONS))}."
_KEYS_OF_TRAINER = f"The keys here are {', '.join(f.name for f in dataclasses.fields(RunConfig))}."
_DATASET_KEYS = {
    "name": "datasetName",
    "url": "datasetUrl",
    "file": "datasetFile",
    "files": "datasetFiles",
    "sha256": "datasetSha256",
    "tokenizer": "datasetTokenizer",
}


_OTHER_KEY = re.compile(rf"(?<![\w.'])(?:{'|'.join(RUN_SECTIONS)})\.\w+")


# The keys of `datasetOptions`: they say what the files hold and how they are split.
OPTION_KEYS = (
    "format",
    "text_field",
    "document_separator",
    "end_of_text",
    "val_share",
    "val_tokens",
    "size_bytes",
)


@dataclass(frozen=True)
class DatasetChoice:
    """The stack's settings of the data set. A field is None if the preset decides.

    `file` is the path of the text in the pods. `files` are several addresses with their checksums.
    `options` holds the other keys of the configuration's section `dataset` (see OPTION_KEYS).
    """

    name: str | None
    url: str | None
    file: str | None
    sha256: str | None
    tokenizer: str | None
    files: tuple[Mapping[str, Any], ...] | None
    options: Mapping[str, Any] | None


def keys_of_run() -> dict[str, str]:
    """Return where each key of the setting `run` is: `run.train.max_steps` for max_steps."""
    config, paths = RunConfig(), {key: f"run.{key}" for key in ("seed", *RUN_SECTIONS)}
    for section in RUN_SECTIONS:
        for option in dataclasses.fields(getattr(config, section)):
            paths.setdefault(option.name, f"run.{section}.{option.name}")
    return paths


def _in_run(found: re.Match[str]) -> str:
    """Return where a key of the trainer's configuration is; the text as it is if it is no key."""
    path = f"run.{found[0]}"
    return path if path in keys_of_run().values() else found[0]


def read_overrides(reader: Reader) -> dict[str, Any]:
    """Read the setting `run`: values that replace the preset's; empty if `run` is encrypted."""
    overrides = reader.mapping("run")
    hint = (
        "Nothing in run is secret: remove all of it (`pulumi config rm run`), and set it again "
        "without --secret. What a program of the pods needs to log in somewhere is set by `pulumi "
        "config set --secret --path podSecrets.NAME`"
    )
    return {} if reader.refuse_encrypted("run", SEEN_BY_ALL, hint) else overrides


def build_run_config(
    preset: str,
    run_name: str,
    accelerator: str,
    dataset: DatasetChoice,
    overrides: Mapping[str, Any],
    *,
    smoke_test: bool,
) -> tuple[RunConfig | None, list[str]]:
    """Return the run's configuration, or None and the problems. Each begins with the stack's key.

    Args:
        preset: name of a file in trainer/presets.
        run_name: name of the run, and of its folder below `/data/runs`.
        accelerator: `gpu` or `cpu`; decides `train.device` and `train.backend`.
        dataset: the stack's settings of the data set.
        overrides: the setting `run`.
        smoke_test: whether the setting `verify` asks for `train.smoke_test`.
    """
    try:
        mapping = load_mapping(preset)
    except ConfigError as error:
        known = preset_names()
        reason = (
            error.problems[0] if preset in known else "there is no such file in trainer/presets"
        )
        hint = f"Set one of {', '.join(known)}"
        return None, [problem_text("preset", preset, reason, hint)]
    from_preset = _from_preset(mapping, overrides)
    problems = _foreign_keys(overrides)
    device, backend = ("cuda", "nccl") if accelerator == "gpu" else ("cpu", "gloo")
    train = _section(overrides, "train")
    if train.get("device", device) not in (device, "auto"):
        reason = f"accelerator is {accelerator}"
        hint = f"Set {device}, or remove it: it follows from accelerator"
        problems.append(problem_text("run.train.device", train["device"], reason, hint))
        del train["device"]  # so that nothing else is said about it
        overrides = {**overrides, "train": train}
    if smoke_test and train.get("smoke_test") is False:
        reason = "verify is before, which needs it"
        hint = "Remove it, or set verify to never or after"
        problems.append(problem_text("run.train.smoke_test", False, reason, hint))
    mapping["run_name"], mapping["data_root"] = run_name, DATA_MOUNT
    mapping["dataset"] = _dataset(_section(mapping, "dataset"), dataset)
    mapping["train"] = {**_section(mapping, "train"), "device": device, "backend": backend}
    if smoke_test:
        mapping["train"]["smoke_test"] = True
    for key, value in overrides.items():
        if key in RUN_SECTIONS and isinstance(value, Mapping):
            mapping[key] = {**_section(mapping, key), **value}
        elif key not in _OWN_KEYS:
            mapping[key] = value
    try:
        config = RunConfig.from_mapping(mapping)
    except ConfigError as error:
        found = (_in_stack_terms(problem) for problem in error.problems)
        return None, [*problems, *(_with_origin(each, from_preset, preset) for each in found)]
    return (None if problems else config), problems


def dataset_only(config: RunConfig) -> dict[str, Any]:
    """Return the part of the configuration that `prepare` needs.

    The data set's Job gets no more, so that it does not change when the rest changes.
    """
    mapping = config.to_mapping()
    return {"data_root": mapping["data_root"], "dataset": mapping["dataset"]}


def _dataset(preset: dict[str, Any], choice: DatasetChoice) -> dict[str, Any]:
    if choice.url or choice.file or choice.files:
        preset = {k: v for k, v in preset.items() if k in ("name", "tokenizer")}
    chosen = {key: value for key in _DATASET_KEYS if (value := getattr(choice, key)) is not None}
    if choice.files is not None:
        chosen["files"] = [dict(file) for file in choice.files]
    options = choice.options or {}
    if "val_share" in options:  # The trainer would take the tokens and not the share.
        preset = {key: value for key, value in preset.items() if key != "val_tokens"}
    return {**preset, **options, **chosen}


def _foreign_keys(overrides: Mapping[str, Any]) -> list[str]:
    return [
        problem_text(
            f"run.{key}", overrides[key], "it has a setting of its own", f"Use {own} instead"
        )
        for key, own in _OWN_KEYS.items()
        if key in overrides
    ]


def _section(mapping: Mapping[str, Any], name: str) -> dict[str, Any]:
    value: object = mapping.get(name)
    return cast(dict[str, Any], dict(value)) if isinstance(value, Mapping) else {}  # pyright: ignore[reportUnknownArgumentType]


def _from_preset(preset: Mapping[str, Any], overrides: Mapping[str, Any]) -> set[str]:
    """Return the keys whose values are the preset's, such as `run.train.warmup_steps`."""
    return {
        f"run.{section}.{key}"
        for section in RUN_SECTIONS
        for key in _section(preset, section).keys() - _section(overrides, section).keys()
    }


def _with_origin(problem: str, from_preset: Collection[str], preset: str) -> str:
    """Say in a problem which of its values the preset has set, because no setting shows them."""

    def named(found: re.Match[str]) -> str:
        origin = f" (from preset {preset})" if found["key"] in from_preset else ""
        return f"{found[0]}{origin}"

    problem = re.sub(r"^(?P<key>run\.[\w.]+): .*?(?= cannot be used)", named, problem)
    return re.sub(r"(?P<key>run\.\w+\.\w+), which is \S+?(?=\. )", named, problem)


def _in_stack_terms(problem: str) -> str:
    """Return a problem of the run configuration with the stack's key in front of it.

    The keys that a problem suggests are those that are allowed in the setting `run`. Other keys
    have a setting of their own, and would be refused there.
    """
    problem = problem.replace(_KEYS_OF_TRAINER, _KEYS)
    head, separator, hint = problem.partition(". ")
    for trainers, ours in _DATASET_KEYS.items():
        hint = re.sub(rf"\bdataset\.{trainers}\b", ours, hint)
    hint = hint.replace("a file or folder in datasetFile", "a file in datasetFile")
    problem = f"{head}{separator}{hint}"
    key = re.match(r"[\w.]*", problem)
    name = key[0] if key else ""
    problem = name + _OTHER_KEY.sub(_in_run, problem[len(name) :])
    if name.startswith("dataset."):
        key = name.removeprefix("dataset.")
        if key in OPTION_KEYS:
            return f"datasetOptions.{key}{problem[len(name) :]}"
        return _DATASET_KEYS.get(key, "datasetUrl") + problem[len(name) :]
    return f"runName{problem[len(name) :]}" if name == "run_name" else f"run.{problem}"
