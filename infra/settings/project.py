"""Reads Pulumi.yaml and the stacks' files without Pulumi.

In `pulumi up` the engine passes the same values to the program (load.py).
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml

PROJECT_ROOT = Path(__file__).parents[2]
# Pulumi.yaml is read at each preview. The loader in C, which PyYAML's wheels have, takes 4 ms, and
# the one in Python 40 ms.
_LOADER = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


def _load(text: str) -> Any:
    return yaml.load(text, _LOADER)


@cache
def declared_defaults() -> dict[str, str]:
    """Return the default of every setting in Pulumi.yaml as text; objects are JSON text."""
    project = cast(dict[str, Any], _load((PROJECT_ROOT / "Pulumi.yaml").read_text()))
    return {key: as_text(entry["default"]) for key, entry in project["config"].items()}


def stack_file(stack: str) -> Path:
    """Return the path of a stack's file, which may not exist."""
    return PROJECT_ROOT / f"Pulumi.{stack}.yaml"


def raw_settings(file: Path) -> tuple[dict[str, str], set[str]]:
    """Return the values of a stack's file, and the defaults of Pulumi.yaml for all other settings.

    Keys of other projects and of Pulumi's providers, such as `kubernetes:namespace`, are left out.
    `load.py` leaves them out, too.

    Args:
        file: a stack file, such as Pulumi.dev.yaml.

    Returns:
        The values `{key: text}` without the project's prefix, where objects are JSON text; and the
        keys whose values are encrypted in the file. For these keys the values hold the default.

    Raises:
        ValueError: there is no such file.
    """
    if not file.is_file():
        known = sorted(path.name for path in PROJECT_ROOT.glob("Pulumi.*.yaml"))
        raise ValueError(f"there is no {file}. The stacks of this project: {', '.join(known)}.")
    content = cast(dict[str, Any], _load(file.read_text()) or {})
    given = own_values(cast(dict[str, Any], content.get("config") or {}))
    encrypted = {key for key, value in given.items() if _holds_secret(value)}
    plain = {key: as_text(value) for key, value in given.items() if key not in encrypted}
    return {**declared_defaults(), **plain}, encrypted


def own_values(values: Mapping[str, Any], project: str = "disttrain") -> dict[str, Any]:
    """Return the values of this project's keys, with the project's prefix removed from the keys."""
    prefix = f"{project}:"
    return {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)}


def as_text(value: object) -> str:
    """Return a value as Pulumi passes it to programs: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _holds_secret(value: object) -> bool:
    """Whether Pulumi encrypted the value, or one inside it."""
    if isinstance(value, Mapping):
        inner = cast(Mapping[str, Any], value)
        return list(inner) == ["secure"] or any(map(_holds_secret, inner.values()))
    return isinstance(value, list) and any(map(_holds_secret, cast(list[Any], value)))
