"""Reads parts of the API's JSON objects. Pure."""

from collections.abc import Iterable
from typing import Any, TypeAlias, cast

Json: TypeAlias = dict[str, Any]
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"  # annotation that kubectl reads too


def part(item: Json, *keys: str) -> Json:
    """The object at `keys`; empty where there is none."""
    for key in keys:
        item = cast(Json, item.get(key) or {})
    return item


def parts(item: Json, key: str) -> list[Json]:
    """The list of objects at `key`; empty where there is none."""
    return cast(list[Json], item.get(key) or [])


def name_of(item: Json) -> str:
    """The object's name."""
    return str(item["metadata"]["name"])


def names_of(items: Iterable[Json]) -> str:
    """The names of objects, for a message."""
    return ", ".join(name_of(item) for item in items)


def label(item: Json, key: str) -> str:
    """A label; empty where there is none."""
    return str(part(item, "metadata", "labels").get(key) or "")


def annotation(item: Json, key: str) -> str:
    """An annotation; empty where there is none."""
    return str(part(item, "metadata", "annotations").get(key) or "")


def condition(item: Json, kind: str) -> Json:
    """The condition of that type; empty where there is none."""
    conditions = parts(part(item, "status"), "conditions")
    return next((each for each in conditions if each.get("type") == kind), Json())


def is_true(item: Json, kind: str) -> bool:
    """Whether there is a condition of that type, and it holds."""
    return condition(item, kind).get("status") == "True"


def is_ending(item: Json) -> bool:
    """Whether the object is being deleted."""
    return bool(part(item, "metadata").get("deletionTimestamp"))


def container_of(pod: Json) -> str:
    """The name of the pod's container that does the work: in our pods it is the first one.

    A service mesh may put its own before it, and then says which one was the first.
    """
    names = [str(container["name"]) for container in pod["spec"]["containers"]]
    chosen = annotation(pod, DEFAULT_CONTAINER)
    return chosen if chosen in names else names[0]
