"""The record that every run has on the cluster: a ConfigMap that tells others about it. Pure."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from infra.kube import names
from infra.kube.objects import Json, annotation, label, part
from infra.kube.workload import Workload

FINISHED, FAILED = "finished: ", "failed: "  # begins of the text about a run whose workload went
GOES_LATER = "ttlSecondsAfterFinished"  # the setting by which a workload goes after its end

COLLECTION = "/api/v1/namespaces/{}/configmaps"
ALL = "/api/v1/configmaps"
SELECTOR = f"{names.RECORD_LABEL}={names.RUN_RECORD}"


def stacks_of_others(items: Iterable[Json], owner: str) -> list[str]:
    """The stacks of the records that have another owner, sorted."""
    return sorted(
        annotation(item, names.STACK_ANNOTATION) or f"of owner {label(item, names.OWNER_LABEL)}"
        for item in items
        if label(item, names.OWNER_LABEL) != owner
    )


def destroy_commands(stacks: Iterable[str]) -> str:
    """The commands that end the runs of these stacks, each on a line of its own, for a message."""
    return "".join(f"\n  pulumi destroy --stack {stack}" for stack in stacks)


@dataclass(frozen=True)
class Ttl:
    """When a workload goes after its end, and how that end is found on the volume afterwards.

    Args:
        seconds: after the end of the run, well or not.
        image: of a pod that reads the run's folder.
        claim: by which it reaches the volume.
        run_dir: the folder, as pods see it.
        placement: fields of the pod's spec that decide where it may run.
    """

    seconds: int
    image: str
    claim: str
    run_dir: str
    placement: dict[str, Any]

    def to_text(self) -> str:
        """The text that the record holds."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(given: dict[str, Any]) -> "Ttl | None":
        """None for an empty object. Raises KeyError or ValueError: a field is missing or wrong."""
        if not given:
            return None
        image, claim, run_dir = (str(given[name]) for name in ("image", "claim", "run_dir"))
        return Ttl(int(given["seconds"]), image, claim, run_dir, dict(given["placement"]))


@dataclass(frozen=True)
class Record:
    """What one run says about itself."""

    owner: str
    stack: str
    workload: Workload
    revision: str
    gpus: int
    gpus_total: int
    """GPUs of its platform."""
    suspend: dict[str, Any]
    """JSON merge patch that makes the workload's pods save and go."""
    resume: dict[str, Any]
    """JSON merge patch that makes them come back."""
    over: tuple[str, ...]
    """Condition types of the workload that mean it has finished or failed."""
    grace_seconds: int
    """How long its pods may take to save."""
    request: str
    since: datetime
    """When its `up` took its place, by the clock of the API server."""
    version: str = ""
    """The resourceVersion under which it was read."""
    namespace: str = ""
    suspended_by: str = ""
    saved_step: str = ""
    """Of its newest checkpoint when it was stopped; empty: that was not seen."""
    ttl: Ttl | None = None
    """Of the workload; None: it stays after its end."""
    how_ended: str = ""
    """`finished: ...` or `failed: ...`, once somebody has read it on the volume after the workload
    had gone; empty: nobody has."""

    @property
    def had_finished(self) -> bool:
        """Whether it is noted that the run had come to its end before its workload went."""
        return self.how_ended.startswith(FINISHED)

    def to_object(self, namespace: str) -> Json:
        """The ConfigMap."""
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
    """The name of an owner's record."""
    return f"disttrain-run-{names.short(owner)}"


def record_path(namespace: str, owner: str) -> str:
    """The path of an owner's record."""
    return f"{COLLECTION.format(namespace)}/{record_name(owner)}"


def parse_record(item: Json) -> Record:
    """Read a ConfigMap.

    Raises:
        ValueError: somebody has changed it so that it cannot be read; names it.
    """
    metadata, data = part(item, "metadata"), part(item, "data")
    try:
        owner = str(metadata["labels"][names.OWNER_LABEL])
        return Record(
            owner=owner,
            stack=annotation(item, names.STACK_ANNOTATION) or owner,
            workload=Workload.from_json(json.loads(data["workload"])),
            revision=data["revision"],
            gpus=int(data["gpus"]),
            gpus_total=int(data["gpusTotal"]),
            suspend=json.loads(data["suspend"]),
            resume=json.loads(data["resume"]),
            over=tuple(json.loads(data["over"])),
            grace_seconds=int(data["graceSeconds"]),
            request=data["request"],
            since=datetime.fromisoformat(data["since"]),
            version=str(metadata.get("resourceVersion") or ""),
            namespace=str(metadata.get("namespace") or ""),
            suspended_by=annotation(item, names.SUSPENDED_BY_ANNOTATION),
            saved_step=annotation(item, names.SAVED_STEP_ANNOTATION),
            ttl=Ttl.from_json(json.loads(data.get("ttl") or "{}")),
            how_ended=annotation(item, names.HOW_ENDED_ANNOTATION),
        )
    except (KeyError, TypeError, ValueError) as error:
        name = f"ConfigMap {metadata.get('name')} in namespace {metadata.get('namespace')}"
        raise ValueError(
            f"{name} is the record of a run and cannot be read ({error!r}). Delete it if that run "
            "no longer exists: kubectl delete configmap"
        ) from None
