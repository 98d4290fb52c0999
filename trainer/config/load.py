"""Reads the configuration of a run from a YAML file or a preset, with command-line overrides."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from trainer.config.problem import ConfigError, did_you_mean, either, problem_text
from trainer.config.run import RunConfig

PRESETS_DIR = Path(__file__).parents[1] / "presets"


def preset_names() -> list[str]:
    """List the names of the presets."""
    return sorted(path.stem for path in PRESETS_DIR.glob("*.yaml"))


def preset_path(name: str) -> Path:
    """Return the file of a preset. For another name, a ConfigError names the closest preset."""
    if name not in preset_names():
        hint = did_you_mean(difflib.get_close_matches(name, preset_names(), n=1))
        reason = f"there is no such preset{hint}"
        remedy = f"Take {either(preset_names())}"
        raise ConfigError([problem_text("--preset", name, reason, remedy)])
    return PRESETS_DIR / f"{name}.yaml"


def load_config(config: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a YAML file (or a preset's name) and apply `--section.key=value` overrides.

    Raises:
        ConfigError: The file cannot be read, an override is malformed, or a value is wrong.
    """
    mapping, problems = load_mapping(config), list[str]()
    for override in overrides:
        match = re.fullmatch(r"--([a-z_0-9]+(?:\.[a-z_0-9]+)*)=(.*)", override, re.DOTALL)
        if match is None:
            reason = "it is not an option and its value"
            problems.append(problem_text("argument", override, reason, "Write --section.key=value"))
            continue
        *sections, key = match[1].split(".")
        target: dict[str, Any] | None = mapping
        for section in sections:
            target = _section(target, section)
        if target is None:
            reason = f"{'.'.join(sections)} is no section with keys of its own"
            remedy = f"Set the option as a whole: --{sections[0]}=VALUE"
            problems.append(problem_text(match[1], match[2], reason, remedy))
            continue
        try:
            target[key] = yaml.safe_load(match[2])
        except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
            remedy = "Write a value as YAML has it, and put a text with signs in quotation marks"
            problems.append(problem_text(match[1], match[2], f"it is not YAML ({error})", remedy))
    try:
        result = RunConfig.from_mapping(mapping)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from None
    if problems:
        raise ConfigError(problems)
    return result


def _section(mapping: dict[str, Any] | None, name: str) -> dict[str, Any] | None:
    """Return the mapping at `name`, which is made if it is missing, or None if it is no mapping."""
    if mapping is None:
        return None
    if mapping.get(name) is None:
        mapping[name] = {}
    inner: object = mapping[name]
    return cast(dict[str, Any], inner) if isinstance(inner, dict) else None


def load_mapping(config: str | Path) -> dict[str, Any]:
    """Read a YAML file, or the preset with that name, without a check of its options.

    Raises:
        ConfigError: The file cannot be read, or holds no mapping.
    """
    path = Path(config)
    preset = PRESETS_DIR / f"{config}.yaml"
    if not path.exists() and preset.exists():
        path = preset
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:  # the second one is a ValueError too
        hint = did_you_mean(difflib.get_close_matches(str(config), preset_names(), n=1))
        reason = f"it cannot be read ({error}){hint}"
        remedy = f"Give the path of a YAML file, or a preset: {either(preset_names())}"
        raise ConfigError([problem_text("--config", str(config), reason, remedy)]) from None
    except (yaml.YAMLError, ValueError) as error:
        remedy = "Mend the file at the place that is named"
        reason = f"it is not YAML ({error})"
        raise ConfigError([problem_text("--config", str(config), reason, remedy)]) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        reason = "the file does not hold a mapping of keys"
        remedy = "Write it like a file in trainer/presets"
        raise ConfigError([problem_text("--config", str(config), reason, remedy)])
    return cast(dict[str, Any], content)


def dump_config(config: RunConfig) -> str:
    """Return the configuration as YAML, in the form that the run's directory keeps."""
    return yaml.safe_dump(config.to_mapping(), sort_keys=False)
