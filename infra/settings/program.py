"""Reads `program`: a training program of the user, which runs in place of disttrain's trainer."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import yaml

from infra.labels import content_hash
from infra.names import DATA_MOUNT
from infra.settings.kinds import DeliveryChoice
from infra.settings.program_files import HINT, read_files
from infra.settings.program_image import PlatformDelivery, ProgramImage, read_build
from infra.settings.program_shell_words import check_shell_words
from infra.settings.project import declared_defaults
from infra.settings.reader import Reader, as_written
from infra.settings.run_settings import SEEN_BY_ALL, read_overrides
from infra.settings.similar_names import did_you_mean, is_misspelt
from trainer.config import LAUNCH_OPTIONS, ConfigError, RunConfig
from trainer.config.problem import without_logins

_KEYS = ("command", "per", "image", "build", "files", "progress", "progress_file")
# Keys that users of other tools look for here, and what to use instead.
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
# Settings that only disttrain's trainer reads. `verify` checks files that this trainer writes.
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
    """A program that runs in place of disttrain's trainer.

    Args:
        config: the run's configuration: the program, and how it is started.
        files: contents of files by their paths below /program; empty if the program is in the
            image.
        image: the image that a Dockerfile of the user makes; None if there is none.
    """

    config: RunConfig
    files: Mapping[str, bytes]
    image: ProgramImage | None


def has_program(reader: Reader) -> bool:
    """Whether the stack sets a program."""
    return bool(reader.mapping("program"))


def read_program(
    reader: Reader,
    run_name: str,
    deliveries: Mapping[str, DeliveryChoice],
    platform: PlatformDelivery,
) -> ProgramSettings | None:
    """Read `program`, and the parts of `run` that say how it is started; None if one is wrong.

    Args:
        reader: gives the values and collects the problems with them.
        run_name: name of the run, and of its folder below `/data/runs`.
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
    is_misspelt_command = "command" not in given and is_misspelt("command", given, _KEYS)
    if not is_misspelt_command:
        _check_command(reader, given.get("command", ""))
    command_is_right = len(reader.problems) == problems and not is_misspelt_command
    path, files = given.pop("files", None), dict[str, bytes]()
    if path is not None and not isinstance(path, str):
        reader.problem("program.files", path, "it is not a text", HINT)
    elif path:
        files = read_files(reader, path)
        encoded = {path: content.hex() for path, content in files.items()}
        given["files"] = content_hash(encoded) if files else None
    if given.get("image") == "":  # as with an empty program.files or program.build
        del given["image"]
    image = read_build(reader, given.pop("build", None), given.get("image"), deliveries, platform)
    if image:
        given["image"] = image.plan.reference
    if not command_is_right:
        given["command"] = ["unknown"]  # so that only other problems are found
    known = {key: value for key, value in given.items() if key in _KEYS}
    mapping = {"run_name": run_name, "data_root": DATA_MOUNT, "train": train, "program": known}
    try:
        config = RunConfig.from_mapping(mapping)
    except ConfigError as error:
        for problem in error.problems:
            reader.add_problem(_in_stack_terms(problem))
        return None
    return ProgramSettings(config, files, image)


def _refuse_unknown_keys(reader: Reader, given: Mapping[str, Any]) -> None:
    for key in sorted(set(given) - set(_KEYS)):
        hint = _ELSEWHERE.get(key) or f"The keys here are {', '.join(_KEYS)}"
        reason = f"there is no such key{did_you_mean(key, _KEYS)}"
        reader.problem(f"program.{key}", given[key], reason, hint)


def _check_command(reader: Reader, command: object) -> None:
    key = "program.command"
    if not command or _is_blank(command):
        hint = "Set what runs in each rank, such as [python, train.py]"
        reader.problem(key, command, "it names no program", hint)
    elif isinstance(command, str):
        reason = "it is one text, and no shell would divide it into words"
        words = _words(str(without_logins(command)))
        reader.problem(key, command, reason, f"Write it as a list: {_as_list(words)}")
    elif isinstance(command, list):
        _check_words(reader, key, cast(list[object], command))
        check_shell_words(reader, cast(list[object], command))


def _check_words(reader: Reader, key: str, words: list[object]) -> None:
    """Refuse booleans, and a first word that is a whole command, such as `python train.py`.

    A path with spaces in it can be the name of a program.
    """
    first = words[0]
    if isinstance(first, str) and len(_words(first)) > 1 and first[0] not in "/.~":
        shown = [*_words(str(without_logins(first))), *(without_logins(each) for each in words[1:])]
        reason = "it would be the name of the program, with its spaces"
        hint = f"Write each word as an item of its own: {_as_list(shown)}"
        reader.problem(f"{key}[0]", first, reason, hint)
    for index, word in enumerate(words):
        if isinstance(word, bool):
            _refuse_boolean(reader, f"{key}[{index}]", word)


def _words(command: str) -> list[str]:
    """Return the words of a command that a user has written as one text: a list of YAML, or words
    as a shell divides them.
    """
    try:
        listed: object = yaml.safe_load(command) if command.lstrip().startswith("[") else None
    except yaml.YAMLError:
        listed = None
    if isinstance(listed, list) and listed:
        return [str(word) for word in cast(list[object], listed)]
    try:
        return shlex.split(command)
    except ValueError:  # A quotation mark is not closed.
        return ["sh", "-c", command]


def _as_list(words: Sequence[object]) -> str:
    """Return the words as a list in YAML, in which a text that looks like a number is quoted."""
    return yaml.safe_dump([*words], default_flow_style=True, width=10_000).strip()


def _is_blank(command: object) -> bool:
    """Whether a text, or the first word of a list, has no sign in it but spaces."""
    first = cast(list[object], command)[0] if isinstance(command, list) else command
    return isinstance(first, str) and not first.strip()


def _refuse_boolean(reader: Reader, key: str, word: bool) -> None:
    """Refuse a boolean among the words.

    The user may have written `true`, `True` or `yes`, and the program may accept only one of them.
    """
    reader.problem(
        key,
        word,
        "Pulumi reads it as a boolean, and a program gets texts",
        "Put it in quotation marks in the stack's file, or set it again as the program reads it, "
        f"such as `pulumi config set --type string --path '{key}' {word}`",
    )


def _refuse_settings_of_the_trainer(reader: Reader) -> None:
    """Note each setting that only disttrain's trainer reads and that differs from its default."""
    for key in _OF_THE_TRAINER:
        value, default = reader.raw(key), declared_defaults()[key]
        if value != default:
            hint = f"Remove it: `pulumi config rm {key}`"
            reader.problem(key, as_written(value), READ_BY_NOBODY, hint)


def _launch_options(reader: Reader) -> dict[str, Any]:
    """Return the options of `run.train` that say how ranks are started. Others are refused."""
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
    """Return a problem of the run's configuration with the stack's key in front of it."""
    return problem if problem.startswith("program.") else f"run.{problem}"
