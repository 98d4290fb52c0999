"""Reads parts of Kubernetes objects in the form of JSON. All functions are pure."""

from collections.abc import Iterable
from typing import Any, TypeAlias, cast

Json: TypeAlias = dict[str, Any]
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"  # kubectl reads this annotation too


def part(item: Json, *keys: str) -> Json:
    """The JSON object at the path `keys`; an empty one where there is none."""
    for key in keys:
        item = cast(Json, item.get(key) or {})
    return item


def parts(item: Json, key: str) -> list[Json]:
    """The list of JSON objects at `key`; an empty one where there is none."""
    return cast(list[Json], item.get(key) or [])


def name_of(item: Json) -> str:
    """The object's name."""
    return str(item["metadata"]["name"])


def names_of(items: Iterable[Json]) -> str:
    """The names of objects, for a message."""
    return ", ".join(name_of(item) for item in items)


def label(item: Json, key: str) -> str:
    """The value of the object's label `key`; empty where it has no such label."""
    return str(part(item, "metadata", "labels").get(key) or "")


def annotation(item: Json, key: str) -> str:
    """The value of the object's annotation `key`; empty where it has no such annotation."""
    return str(part(item, "metadata", "annotations").get(key) or "")


def condition(item: Json, kind: str) -> Json:
    """The condition of the type `kind` in the object's status; empty where there is none."""
    conditions = parts(part(item, "status"), "conditions")
    return next((each for each in conditions if each.get("type") == kind), Json())


def is_true(item: Json, kind: str) -> bool:
    """Whether the object's status has a condition of the type `kind`, and it is true."""
    return condition(item, kind).get("status") == "True"


def is_ending(item: Json) -> bool:
    """Whether the object is being deleted."""
    return bool(part(item, "metadata").get("deletionTimestamp"))


def machine_of(pod: Json) -> str:
    """The name of the node on which the pod is; empty where it has none yet."""
    return str(part(pod, "spec").get("nodeName") or "")


def is_running(pod: Json) -> bool:
    """Whether the pod has begun and has not ended."""
    return part(pod, "status").get("phase") == "Running"


def has_ended(pod: Json) -> bool:
    """Whether all containers of the pod have ended for good."""
    return part(pod, "status").get("phase") in ("Succeeded", "Failed")


def container_of(pod: Json) -> str:
    """The name of the pod's container that does the work.

    In our pods that is the first container. A service mesh may put its own container before it, and
    then names the original first one in an annotation.
    """
    names = [str(container["name"]) for container in pod["spec"]["containers"]]
    chosen = annotation(pod, DEFAULT_CONTAINER)
    return chosen if chosen in names else names[0]
