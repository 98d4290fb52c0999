"""The record of a run: a ConfigMap by which stacks that share a cluster know each other's runs."""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, cast

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.objects import Json, annotation, label, part
from infra.kube.workload import Workload, is_switch

FINISHED, FAILED = "finished: ", "failed: "  # `Record.how_ended` begins with one of these
GOES_LATER = "ttlSecondsAfterFinished"  # the setting that removes a workload after its end

COLLECTION = "/api/v1/namespaces/{}/configmaps"
ALL = "/api/v1/configmaps"
_STACK = re.compile(r"[\w.-]+(/[\w.-]+){0,2}", re.ASCII)
SELECTOR = f"{names.RECORD_LABEL}={names.RUN_RECORD}"


def stacks_of_others(items: Iterable[Json], owner: str) -> list[str]:
    """The stacks of the records that do not belong to `owner`, sorted."""
    return sorted(
        _stack(item, names.STACK_ANNOTATION, f"of owner {label(item, names.OWNER_LABEL)}")
        for item in items
        if label(item, names.OWNER_LABEL) != owner
    )


def destroy_commands(stacks: Iterable[str]) -> str:
    """The commands that end the runs of these stacks, each on a line of its own, for a message."""
    return "".join(f"\n  pulumi destroy --stack {stack}" for stack in stacks)


@dataclass(frozen=True)
class Ttl:
    """When a workload is removed after its end, and what the pod needs that reads the run's end.

    After the removal, such a pod finds out from the run's folder on the volume how the run ended.

    Args:
        seconds: how long the workload stays after the run has finished or failed.
        image: the image of the pod that reads the run's folder.
        claim: the name of the claim by which that pod mounts the volume.
        run_dir: the run's folder, as pods see it.
        placement: fields of that pod's spec that decide where it may run.
    """

    seconds: int
    image: str
    claim: str
    run_dir: str
    placement: dict[str, Any]

    def to_text(self) -> str:
        """The JSON text in the record's field `ttl`."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(given: dict[str, Any]) -> "Ttl | None":
        """Read the JSON object of `to_text`; None for an empty object.

        Raises KeyError or ValueError: a field is missing or wrong.
        """
        if not given:
            return None
        image, claim, run_dir = (str(given[name]) for name in ("image", "claim", "run_dir"))
        return Ttl(int(given["seconds"]), image, claim, run_dir, dict(given["placement"]))


@dataclass(frozen=True)
class Record:
    """What the stack of one run has written about that run."""

    owner: str
    stack: str
    workload: Workload
    revision: str
    gpus: int
    gpus_total: int
    """How many GPUs the run's platform has."""
    suspend: dict[str, Any]
    """The JSON merge patch that suspends the workload: its pods save and end."""
    resume: dict[str, Any]
    """The JSON merge patch that resumes the workload: its pods come back."""
    over: tuple[str, ...]
    """The condition types that mean that the workload has finished or failed."""
    grace_seconds: int
    """How long the run's pods may take to save."""
    request: str
    since: datetime
    """When the hand-over of this run's `pulumi up` ended, by the clock of the API server."""
    version: str = ""
    """The resourceVersion that the ConfigMap had when it was read."""
    namespace: str = ""
    suspended_by: str = ""
    saved_step: str = ""
    """The step of the newest checkpoint when `./disttrain stop` stopped the run; empty: unknown."""
    ttl: Ttl | None = None
    """When the workload is removed after its end; None: it stays."""
    how_ended: str = ""
    """`finished: ...` or `failed: ...`; empty: it is not known. It is noted when somebody reads on
    the volume how the run ended, after the workload was removed."""

    @property
    def had_finished(self) -> bool:
        """Whether the record notes that the run had finished before its workload was removed."""
        return self.how_ended.startswith(FINISHED)

    def to_object(self, namespace: str) -> Json:
        """The ConfigMap that holds this record."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": record_name(self.owner),
                "namespace": namespace,
                "labels": {
                    names.PART_OF_LABEL: names.PROJECT,
                    names.RECORD_LABEL: names.RUN_RECORD,
                    names.OWNER_LABEL: self.owner,
                },
                "annotations": {
                    names.STACK_ANNOTATION: self.stack,
                    **({names.HOW_ENDED_ANNOTATION: self.how_ended} if self.how_ended else {}),
                },
            },
            "data": {
                "workload": json.dumps(self.workload.to_json()),
                "revision": self.revision,
                "gpus": str(self.gpus),
                "gpusTotal": str(self.gpus_total),
                "suspend": json.dumps(self.suspend),
                "resume": json.dumps(self.resume),
                "over": json.dumps(self.over),
                "graceSeconds": str(self.grace_seconds),
                "request": self.request,
                "since": self.since.isoformat(),
                **({"ttl": self.ttl.to_text()} if self.ttl else {}),
            },
        }


def record_name(owner: str) -> str:
    """The name of the ConfigMap with the record of an owner's run."""
    return f"disttrain-run-{names.short(owner)}"


def record_path(namespace: str, owner: str) -> str:
    """The API server's path of the record of an owner's run."""
    return f"{COLLECTION.format(namespace)}/{record_name(owner)}"


def read_record(api: Api, namespace: str, owner: str) -> Record | None:
    """The record of an owner's run; None: there is none.

    Raises:
        ValueError: as for `parse_record`.
    """
    item = api.get(record_path(namespace, owner))
    return parse_record(item) if item else None


def parse_record(item: Json) -> Record:
    """Read the ConfigMap of a record.

    Raises:
        ValueError: somebody has changed the ConfigMap so that it cannot be read. The text names it.
    """
    metadata, data = part(item, "metadata"), part(item, "data")
    try:
        owner = str(metadata["labels"][names.OWNER_LABEL])
        if not owner:
            raise ValueError(f"its label {names.OWNER_LABEL} is empty")
        return Record(
            owner=owner,
            stack=_stack(item, names.STACK_ANNOTATION, owner),
            workload=Workload.from_json(_object(data, "workload")),
            revision=data["revision"],
            gpus=int(data["gpus"]),
            gpus_total=int(data["gpusTotal"]),
            suspend=_steering(data, "suspend"),
            resume=_steering(data, "resume"),
            over=_texts(data, "over"),
            grace_seconds=int(data["graceSeconds"]),
            request=data["request"],
            since=_time(data, "since"),
            version=str(metadata.get("resourceVersion") or ""),
            namespace=str(metadata.get("namespace") or ""),
            suspended_by=_stack(item, names.SUSPENDED_BY_ANNOTATION, ""),
            saved_step=annotation(item, names.SAVED_STEP_ANNOTATION),
            ttl=Ttl.from_json(_object(data, "ttl") if data.get("ttl") else {}),
            how_ended=annotation(item, names.HOW_ENDED_ANNOTATION),
        )
    except (KeyError, TypeError, ValueError) as error:
        name, namespace = metadata.get("name"), metadata.get("namespace")
        raise ValueError(
            f"ConfigMap {name} in namespace {namespace} is the record of a run and cannot be read "
            f"({error!r}). Delete it if that run no longer exists: kubectl -n {namespace} delete "
            f"configmap {name}"
        ) from None


def _stack(item: Json, key: str, otherwise: str) -> str:
    """The name of a stack in an annotation; `otherwise` if there is no such name.

    Messages tell users to type it in commands, so a text with other signs is not taken.
    """
    text = annotation(item, key)
    return text if _STACK.fullmatch(text) else otherwise


def _object(data: Json, field: str) -> Json:
    found: object = json.loads(data[field])
    if not isinstance(found, dict):
        raise ValueError(f"its field {field} is no object")
    return cast(Json, found)


def _steering(data: Json, field: str) -> Json:
    """Read what suspends or resumes the workload: a merge patch, or a command.

    A record is a ConfigMap, and other stacks send what it says with the rights of their users. So
    whoever may write a ConfigMap must not be able to choose another change than such a switch.
    """
    found = _object(data, field)
    if not is_switch(found):
        raise ValueError(f"its field {field} is neither a switch below spec nor a command")
    return found


def _texts(data: Json, field: str) -> tuple[str, ...]:
    found: object = json.loads(data[field])
    if not isinstance(found, list):
        raise ValueError(f"its field {field} is no list")
    return tuple(str(each) for each in cast(list[object], found))


def _time(data: Json, field: str) -> datetime:
    found = datetime.fromisoformat(data[field])
    if found.tzinfo is None:
        raise ValueError(f"its field {field} has no time zone")
    return found
