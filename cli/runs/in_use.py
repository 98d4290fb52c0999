"""Which runs of the volume belong to a stack that stands, by the records of the runs. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

from infra.kube import names
from infra.kube.objects import Json, label, name_of, part
from infra.kube.record import parse_record

CONFIG = "run.yaml"
CONFIGS = f"{names.COMPONENT_LABEL}={names.TRAINING}"  # selects the configurations of trainings
OWN = "this stack"


@dataclass
class Users:
    """Who uses what.

    Args:
        stacks: for the name of a run, the stacks whose records say that it is theirs.
        unknown: records of which it could not be seen which run they are about, in words.
    """

    stacks: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    unknown: list[str] = field(default_factory=list[str])


def users(records: Iterable[Json], config_maps: Iterable[Json], own: str = "") -> Users:
    """Find the users of runs.

    Args:
        records: ConfigMaps, the records of all runs of the namespace.
        config_maps: those with the configurations of trainings; a record and its configuration
            have the same owner.
        own: the run that the stack's own outputs name, which counts as used; empty: none.
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
        found.stacks[own] = [OWN]
    return found


def runs_of_owners(config_maps: Iterable[Json]) -> dict[str, set[str]]:
    """The names of each owner's runs, by the configurations of trainings."""
    found: dict[str, set[str]] = {}
    for item in config_maps:
        if run := _run_name(item):
            found.setdefault(label(item, names.OWNER_LABEL), set()).add(run)
    return found


def refusal(run: str, found: Users) -> str:
    """Why a run cannot be deleted, as far as records tell; empty where it can."""
    if stacks := found.stacks.get(run):
        return (
            f"run {run!r} is in use: {', '.join(stacks)}. First, in that stack: pulumi destroy, or "
            "another runName and pulumi up"
        )
    if found.unknown:
        return (
            f"run {run!r} was not deleted, because it could not be seen whether it is in use: "
            f"{'; '.join(found.unknown)}"
        )
    return ""


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
