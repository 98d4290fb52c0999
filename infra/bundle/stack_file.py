"""The settings of a stack, read from its file without Pulumi: for what runs where no engine is."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pulumi
import yaml

from infra.settings import PROJECT_ROOT, Settings, parse_settings


def settings_of(file: Path, changes: Mapping[str, str]) -> Settings:
    """Defaults of Pulumi.yaml, then the stack's file, then `changes`.

    Secrets stay encrypted and count as not set: nothing that is packed depends on one.

    Raises:
        ValueError: there is no such file, or its settings are wrong.
    """
    if not file.is_file():
        known = ", ".join(sorted(path.name for path in PROJECT_ROOT.glob("Pulumi.*.yaml")))
        raise ValueError(f"there is no {file}; the stacks here: {known}")
    project = yaml.safe_load((PROJECT_ROOT / "Pulumi.yaml").read_text())
    content = cast(dict[str, Any], yaml.safe_load(file.read_text()) or {})
    given = cast(dict[str, Any], content.get("config") or {})
    prefix = f"{project['name']}:"
    raw = {key: _text(entry["default"]) for key, entry in project["config"].items()}
    raw |= {k.removeprefix(prefix): _text(v) for k, v in given.items() if not _is_secret(v)}
    try:
        return parse_settings({**raw, **changes}, (), file.name.split(".")[1])
    except pulumi.RunError as problem:
        raise ValueError(str(problem)) from None


def _is_secret(value: object) -> bool:
    return isinstance(value, Mapping) and list(cast(Mapping[str, Any], value)) == ["secure"]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
