"""Checks whether another stack uses the name of a run's data set for other data.

The name is that of the data set's folder on the volume. If two stacks used it for different data,
the data set of the second one would take the place of the first one's. The run of the first stack
could then not start again.
"""

from dataclasses import dataclass
from typing import cast

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, list_if_allowed, object_at
from infra.kube.objects import Json, label, part, parts
from infra.kube.paths import CONFIG_MAPS, JOBS
from infra.names import DATASET

SELECTOR = f"{names.COMPONENT_LABEL}={DATASET}"
OPTIONS = ("tokenizer", "end_of_text", "format", "text_field", "document_separator", "val_tokens")
"""Options that determine the tokens of a data set."""


@dataclass(frozen=True)
class DatasetUse:
    """The data set of this stack's run.

    Args:
        namespace: the namespace of the platform.
        claim: the claim on whose volume the data set will be.
        owner: the owner id of this stack; empty before its first `up`.
        dataset: the section `dataset` of the run's configuration.
    """

    namespace: str
    claim: str
    owner: str
    dataset: Json


def dataset_findings(api: Api, use: DatasetUse) -> Findings:
    """Look for a data set of another stack with the same name, the same volume and other data.

    Raises ApiError and UnreachableError.
    """
    found, name = Findings(), use.dataset["name"]
    what = f"whether another stack uses the name {name} for other data"
    jobs, _ = list_if_allowed(api, JOBS.format(use.namespace), SELECTOR)
    if jobs is None:
        found.unseen(what)
        return found
    for job in jobs:
        claim, config_map = _mounted(job)
        is_ours = use.owner and label(job, names.OWNER_LABEL) == use.owner
        if is_ours or claim != use.claim:
            continue
        item = object_at(api, f"{CONFIG_MAPS.format(use.namespace)}/{config_map}")
        if item == "unseen":
            found.unseen(what)
            return found
        if item is None:
            continue  # The stack is being destroyed.
        other = _dataset_in(item)
        if other is None:
            found.notes.append(f"it was not checked {what}: ConfigMap {config_map} has changed")
        elif other.get("name") == name and (differing := _differing(use.dataset, other)):
            found.problems.append(_taken(name, label(job, names.STACK_LABEL), differing))
    return found


def _mounted(job: Json) -> tuple[str, str]:
    """The names of the claim and of the ConfigMap with the settings that a Job's pod mounts."""
    spec = part(job, "spec", "template", "spec")
    volumes = {str(each.get("name")): each for each in parts(spec, "volumes")}
    claim = part(volumes, "data", "persistentVolumeClaim").get("claimName")
    return str(claim), str(part(volumes, "config", "configMap").get("name"))


def _dataset_in(config_map: Json) -> Json | None:
    """The section `dataset` of the settings in a ConfigMap; None: there is none."""
    import yaml  # It is imported here, because programs that `pulumi up` starts run without it.

    try:
        settings: object = yaml.safe_load(str(part(config_map, "data").get("run.yaml")))
    except yaml.YAMLError:
        return None
    dataset = cast(Json, settings).get("dataset") if isinstance(settings, dict) else None
    return cast(Json, dataset) if isinstance(dataset, dict) else None


def _differing(ours: Json, theirs: Json) -> list[str]:
    """What makes the tokens of one data set others than those of the other one, in words."""
    options = [*OPTIONS, *([] if "val_tokens" in {**ours, **theirs} else ["val_share"])]
    words = [option for option in options if ours.get(option) != theirs.get(option)]
    return [*(["text"] if _texts(ours) != _texts(theirs) else []), *words]


def _texts(dataset: Json) -> list[object]:
    """What identifies each file of a data set: its checksum, or else where it is.

    The trainer compares data sets in the same way (trainer/data/request.py).
    """
    if dataset.get("file") or dataset.get("url"):
        return [dataset.get("sha256") or dataset.get("file") or dataset.get("url")]
    return [file.get("sha256") or file.get("url") for file in parts(dataset, "files")]


def _taken(name: str, stack: str, differing: list[str]) -> str:
    *others, last = differing
    what = f"{', '.join(others)} and {last}" if others else last
    return (
        f"datasetName: {name!r} cannot be used: the data set of stack {stack} has this name on the "
        f"same volume, and another {what}. This stack's data set would take its place, and the run "
        "of that stack could not start again. Set another name, also if this one is that of the "
        "preset: `pulumi config set datasetName NAME`. If the run of that stack is needed no more, "
        f"end it first (its checkpoints are kept): `pulumi destroy --stack {stack}`"
    )
