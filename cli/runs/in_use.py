"""Finds out from the runs' records which runs on the volume are used by a stack.

This module is pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

from cli.stack_outputs import SELECTED
from infra.kube import names
from infra.kube.objects import Json, label, name_of, part
from infra.kube.record import parse_record

CONFIG = "run.yaml"
CONFIGS = f"{names.COMPONENT_LABEL}={names.TRAINING}"  # the label selector of run configurations


@dataclass
class Users:
    """The stacks that use runs.

    Args:
        stacks: by the name of a run, the stacks that have a record about it.
        unknown: a text for each record whose run could not be found out.
    """

    stacks: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    unknown: list[str] = field(default_factory=list[str])


def users(
    records: Iterable[Json],
    config_maps: Iterable[Json],
    own: str = "",
    stack: str = SELECTED,
) -> Users:
    """Find the stacks that use runs.

    Args:
        records: the records of all runs of the namespace, which are ConfigMaps.
        config_maps: the ConfigMaps with the configurations of trainings. A record and its
            configuration have the same owner.
        own: the run that the outputs of the user's own stack name, which always counts as used;
            empty if they name none.
        stack: the name of the user's own stack, or SELECTED.
    """
    found, by_owner = Users(), runs_of_owners(config_maps)
    for item in records:
        try:
            record = parse_record(item)
        except ValueError as error:
            found.unknown.append(str(error))
            continue
        runs = by_owner.get(record.owner)
        if not runs:
            found.unknown.append(
                f"stack {record.stack} has a run (ConfigMap {name_of(item)}) whose configuration "
                "is not there"
            )
        for run in sorted(runs or ()):
            found.stacks.setdefault(run, []).append(record.stack.rpartition("/")[2])
    if own and own not in found.stacks:
        found.stacks[own] = [stack]
    return found


def runs_of_owners(config_maps: Iterable[Json]) -> dict[str, set[str]]:
    """Return the names of each owner's runs, from the configurations of trainings."""
    found: dict[str, set[str]] = {}
    for item in config_maps:
        if run := _run_name(item):
            found.setdefault(label(item, names.OWNER_LABEL), set()).add(run)
    return found


def refusal(run: str, found: Users) -> str:
    """Return why a run cannot be deleted, according to the records; empty if it can."""
    if stacks := found.stacks.get(run):
        return (
            f"run {run!r} is in use by {_shown(stacks)}. First, in that stack: pulumi destroy, or "
            "another runName and pulumi up"
        )
    if found.unknown:
        return (
            f"run {run!r} was not deleted, because it could not be seen whether it is in use: "
            f"{'; '.join(found.unknown)}"
        )
    return ""


def _shown(stacks: Iterable[str]) -> str:
    return ", ".join(name if name == SELECTED else f"stack {name}" for name in stacks)


def _run_name(item: Json) -> str:
    text = part(item, "data").get(CONFIG)
    if not text:
        return ""
    try:
        content: object = yaml.safe_load(str(text))
    except yaml.YAMLError:
        return ""
    if not isinstance(content, dict):
        return ""
    return str(cast(dict[str, Any], content).get("run_name") or "")
