"""`program`: a training program of the user's own, which runs in place of our trainer."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import yaml

from infra.labels import content_hash
from infra.names import DATA_MOUNT
from infra.settings.kinds import DeliveryChoice
from infra.settings.program_files import PLACE, read_files
from infra.settings.program_image import PlatformDelivery, ProgramImage, read_build
from infra.settings.project import declared_defaults
from infra.settings.reader import Reader, did_you_mean
from infra.settings.run_settings import SEEN_BY_ALL, read_overrides
from trainer.config import LAUNCH_OPTIONS, ConfigError, RunConfig

_KEYS = ("command", "per", "image", "build", "files", "progress", "progress_file")
# What users of other tools look for here, and where it is.
_ELSEWHERE = {
    "args": "Write them behind the program in program.command",
    "env": "Set them by podEnvironment, or secret ones by podSecrets",
    "checkpoints": "Let the program write them to the folder DISTTRAIN_CHECKPOINT_DIR",
}
_WITHOUT_SECRETS = (
    "Give it to the program as a variable (`pulumi config set --secret --path podSecrets.NAME`), "
    "remove all of program (`pulumi config rm program`), and set it again without --secret"
)
READ_BY_NOBODY = "program is set, and only disttrain's own trainer reads this setting"
# What only our own trainer reads; `verify` looks at what it writes.
_OF_THE_TRAINER = (
    "preset",
    "datasetName",
    "datasetUrl",
    "datasetFile",
    "datasetFiles",
    "datasetSha256",
    "datasetTokenizer",
    "datasetOptions",
    "datasetTimeoutSeconds",
    "verify",
)


@dataclass(frozen=True)
class ProgramSettings:
    """A program in place of our trainer.

    Args:
        config: of the run: the program, and how it is started.
        files: content by path below /program; empty: the program is in the image.
        image: what a Dockerfile of the user's own makes; None: there is none.
    """

    config: RunConfig
    files: Mapping[str, bytes]
    image: ProgramImage | None = None


def is_set(reader: Reader) -> bool:
    """Whether the stack has a program of its own."""
    return bool(reader.mapping("program"))


def read_program(
    reader: Reader,
    run_name: str,
    deliveries: Mapping[str, DeliveryChoice],
    platform: PlatformDelivery,
) -> ProgramSettings | None:
    """Read `program`, and the parts of `run` that say how it is started; None: they are wrong.

    Args:
        reader: gives the values and collects what is wrong with them.
        run_name: folder below `/data/runs`.
        deliveries: the kinds of delivery.
        platform: how the platform of another stack brings images to its nodes.
    """
    given = reader.mapping("program")
    _refuse_settings_of_the_trainer(reader)
    train = _launch_options(reader)
    if reader.refuse_encrypted("program", SEEN_BY_ALL, _WITHOUT_SECRETS):
        return None
    _refuse_unknown_keys(reader, given)
    problems = len(reader.problems)
    _check_command(reader, given.get("command", ""))
    command_is_right = len(reader.problems) == problems
    place, files = given.pop("files", None), dict[str, bytes]()
    if place is not None and not isinstance(place, str):
        reader.problem("program.files", place, "it is not a text", PLACE)
    elif place is not None:
        files = read_files(reader, place)
        encoded = {path: content.hex() for path, content in files.items()}
        given["files"] = content_hash(encoded) if files else None
    image = read_build(reader, given.pop("build", None), given.get("image"), deliveries, platform)
    if image:
        given["image"] = image.plan.reference
    if not command_is_right:
        given["command"] = ["unknown"]  # so that only what else is wrong is found
    known = {key: value for key, value in given.items() if key in _KEYS}
    mapping = {"run_name": run_name, "data_root": DATA_MOUNT, "train": train, "program": known}
    try:
        config = RunConfig.from_mapping(mapping)
    except ConfigError as error:
        reader.problems += [_in_stack_terms(problem) for problem in error.problems]
        return None
    return ProgramSettings(config, files, image)


def _refuse_unknown_keys(reader: Reader, given: Mapping[str, Any]) -> None:
    for key in sorted(set(given) - set(_KEYS)):
        hint = _ELSEWHERE.get(key) or f"The keys here are {', '.join(_KEYS)}"
        reason = f"there is no such key{did_you_mean(key, _KEYS)}"
        reader.problem(f"program.{key}", given[key], reason, hint)


def _check_command(reader: Reader, command: object) -> None:
    key = "program.command"
    if not command:
        hint = "Set what runs in each rank, such as [python, train.py]"
        reader.problem(key, command, "it names no program", hint)
    elif isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError:  # a quotation mark that is not closed
            words = ["sh", "-c", command]
        reason = "it is one text, and no shell would divide it into words"
        # As YAML writes a list, in which a number has to be in quotation marks to be a text.
        shown = yaml.safe_dump(words, default_flow_style=True, width=10_000).strip()
        reader.problem(key, command, reason, f"Write it as a list: {shown}")
    elif isinstance(command, list):
        for place, word in enumerate(cast(list[object], command)):
            if isinstance(word, bool):
                _refuse_boolean(reader, f"{key}[{place}]", word)


def _refuse_boolean(reader: Reader, key: str, word: bool) -> None:
    """Nobody knows how it was written: `true`, `True` or `yes`, of which a program may read one."""
    reader.problem(
        key,
        word,
        "Pulumi reads it as a boolean, and a program gets texts",
        "Put it in quotation marks in the stack's file, or set it again as the program reads it, "
        f"such as `pulumi config set --type string --path '{key}' {word}`",
    )


def _refuse_settings_of_the_trainer(reader: Reader) -> None:
    """Note each setting that only our own trainer reads and that is not at its default."""
    for key in _OF_THE_TRAINER:
        value, default = reader.raw(key), declared_defaults()[key]
        if value != default:
            reader.problem(key, value, READ_BY_NOBODY, f"Remove it: `pulumi config rm {key}`")


def _launch_options(reader: Reader) -> dict[str, Any]:
    """The options of `run.train` that are about starting ranks; all others are refused."""
    overrides = read_overrides(reader)
    train: object = overrides.get("train")
    options = dict(cast(Mapping[str, Any], train)) if isinstance(train, Mapping) else {}
    others = {f"run.{key}": value for key, value in overrides.items() if key != "train"}
    if train is not None and not isinstance(train, Mapping):
        others["run.train"] = train
    others |= {f"run.train.{k}": v for k, v in options.items() if k not in LAUNCH_OPTIONS}
    for key, value in others.items():
        reader.problem(
            key,
            value,
            READ_BY_NOBODY,
            "Remove it, and give the program its options in program.command or podEnvironment; "
            f"of run there may be train.{', train.'.join(LAUNCH_OPTIONS)}",
        )
    return {key: value for key, value in options.items() if key in LAUNCH_OPTIONS}


def _in_stack_terms(problem: str) -> str:
    """A problem of the run's configuration, beginning with the key that the user has set."""
    return problem if problem.startswith("program.") else f"run.{problem}"
