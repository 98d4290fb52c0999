"""Reads Pulumi.yaml and the stacks' files without Pulumi.

In `pulumi up` the engine passes the same values to the program (load.py).
"""

import difflib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml

from infra.settings.engine_yaml import RepeatedKeyError, load_as_engine

PROJECT_ROOT = Path(__file__).parents[2]
_FIRST_NAME = "disttrain"
"""The project's name, unless a user has changed it in Pulumi.yaml."""
_LEAST_LIKENESS = 0.85  # disttrain and distrain have 0.94, disttrain and kubernetes 0.21


@cache
def _project_file() -> dict[str, Any]:
    return cast(dict[str, Any], load_as_engine((PROJECT_ROOT / "Pulumi.yaml").read_text()))


def project_name() -> str:
    """Return the name in Pulumi.yaml, with which the settings in a stack's file begin."""
    return str(_project_file()["name"])


@cache
def declared_defaults() -> dict[str, str]:
    """Return the default of every setting in Pulumi.yaml as text; objects are JSON text."""
    return {key: as_text(entry["default"]) for key, entry in _project_file()["config"].items()}


def stack_file(stack: str) -> Path:
    """Return the path of a stack's file, which may not exist."""
    return PROJECT_ROOT / f"Pulumi.{stack}.yaml"


def raw_settings(file: Path) -> tuple[dict[str, str], set[str]]:
    """Return the values of a stack's file, and the defaults of Pulumi.yaml for all other settings.

    Keys of other projects and of Pulumi's providers, such as `kubernetes:namespace`, are left out.
    `load.py` leaves them out, too. A key without a prefix is this project's, and a key without a
    value has the empty text, as in Pulumi's engine.

    Args:
        file: a stack file, such as Pulumi.dev.yaml.

    Returns:
        The values `{key: text}` without the project's prefix, where objects are JSON text; and the
        keys whose values are encrypted in the file. For these keys the values hold the default.

    Raises:
        ValueError: there is no such file, or it is not the file of a stack.
    """
    if not file.is_file():
        known = sorted(path.name for path in PROJECT_ROOT.glob("Pulumi.*.yaml"))
        raise ValueError(f"there is no {file}. The stacks of this project: {', '.join(known)}.")
    given = own_values({_with_prefix(key): value for key, value in _configuration(file).items()})
    encrypted = {key for key, value in given.items() if _holds_secret(value)}
    plain = {
        key: "" if value is None else as_text(value)
        for key, value in given.items()
        if key not in encrypted
    }
    return {**declared_defaults(), **plain}, encrypted


def names_environments(file: Path) -> bool:
    """Whether a stack's file names environments of Pulumi ESC, or has one in it.

    Settings may come from there, and only Pulumi can read them.
    """
    content: object = load_as_engine(file.read_text())
    return isinstance(content, dict) and bool(cast(dict[str, object], content).get("environment"))


def _configuration(file: Path) -> dict[str, Any]:
    """Return what stands below `config` in a stack's file.

    Raises:
        ValueError: the file is not YAML, has a key twice, or has something else there than keys
            and their values.
    """
    text = file.read_text()
    try:
        content: object = load_as_engine(text)
    except RepeatedKeyError as error:
        refused = f"{file}: {error}, and Pulumi refuses that. Remove one of the two."
        raise ValueError(refused) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark else ""
        wrong = text.splitlines()[mark.line : mark.line + 1] if mark else []
        hint = "Write spaces in place of the tab" if "\t" in "".join(wrong) else "Correct it there"
        raise ValueError(f"{file}{line}: this is not YAML. {hint}.") from None
    everything = _keys_of(content, f"{file}: it holds")
    if beside := [key for key in everything if key.startswith(f"{project_name()}:")]:
        raise ValueError(
            f"{file}: {beside[0]} stands beside config and not below it, and Pulumi reads no "
            "settings there. Begin its line with two spaces."
        )
    config = _keys_of(everything.get("config"), f"{file}: below config stands")
    if twice := [key for key in config if ":" not in key and _with_prefix(key) in config]:
        raise ValueError(
            f"{file}: {twice[0]} and {_with_prefix(twice[0])} are the same setting, which is so "
            "given twice. Remove one of the two."
        )
    return config


def _keys_of(content: object, where: str) -> dict[str, Any]:
    """Return a mapping of keys; an empty one for nothing.

    Raises:
        ValueError: it is something else. `where` begins the message.
    """
    if content is None or isinstance(content, dict):
        return cast(dict[str, Any], content or {})
    form = "a list" if isinstance(content, list) else "a single value"
    raise ValueError(
        f"{where} {form} and not keys with their values. Write it like "
        "config: {disttrain:gpus: 2}."
    )


def _with_prefix(key: str) -> str:
    """Return the key of a stack's file with its namespace, which is the project's by default."""
    return key if ":" in key else f"{project_name()}:{key}"


def own_values(values: Mapping[str, Any], project: str = "") -> dict[str, Any]:
    """Return the values of this project's keys, with the project's prefix removed from the keys.

    A key of this project whose prefix is misspelt, or is the project's former name, stays as it is,
    so that it is refused. Keys of Pulumi's providers, such as `kubernetes:namespace`, are left out.

    Args:
        values: the values by their whole keys.
        project: the project's name; empty: the one in Pulumi.yaml.
    """
    project = project or project_name()
    prefix = f"{project}:"
    return {
        key.removeprefix(prefix): value
        for key, value in values.items()
        if key.startswith(prefix) or _is_misspelt(key, project)
    }


def _is_misspelt(key: str, project: str) -> bool:
    """Whether a key is a setting of this project with nearly the project's name, or its former one.

    Providers may have settings of the same names, such as `namespace`, but none is called alike.
    """
    prefix, _, name = key.partition(":")
    likeness = difflib.SequenceMatcher(None, prefix.lower(), project.lower()).ratio()
    is_meant = prefix == _FIRST_NAME or likeness >= _LEAST_LIKENESS
    return prefix != project and name in declared_defaults() and is_meant


def as_text(value: object) -> str:
    """Return a value as Pulumi passes it to programs: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _holds_secret(value: object) -> bool:
    """Whether Pulumi encrypted the value, or one inside it."""
    if isinstance(value, Mapping):
        inner = cast(Mapping[str, Any], value)
        return list(inner) == ["secure"] or any(map(_holds_secret, inner.values()))
    return isinstance(value, list) and any(map(_holds_secret, cast(list[Any], value)))
