"""Finds out what has made an object: its owners, as Kubernetes notes them, or a Helm release."""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError
from infra.kube.objects import Json, label, part, parts
from infra.kube.paths import NAMESPACES

_MOST_OWNERS = 5  # how long a chain of owners may be


def is_of_release(item: Json, release: str, namespace: str) -> bool:
    """Whether Helm has made the object as a part of this release. This function is pure."""
    notes = part(part(item, "metadata"), "annotations")
    noted = [notes.get(f"meta.helm.sh/release-{word}") for word in ("name", "namespace")]
    return noted == [release, namespace]


def has_made(api: Api, owner: str, namespace: str) -> bool:
    """Whether the stack with this owner id has made the namespace. Raises ApiError."""
    found = api.get(f"{NAMESPACES}/{namespace}")
    return found is not None and label(found, names.OWNER_LABEL) == owner


def first_owner(api: Api, item: Json) -> Json | None:
    """The first object in the chain of an object's owners; without owners, the object itself.

    None: an owner in the chain is gone, so Kubernetes deletes the object too. The search ends at an
    object with this program's label for the owner.
    """
    for _ in range(_MOST_OWNERS):
        owners = parts(part(item, "metadata"), "ownerReferences")
        if not owners or label(item, names.OWNER_LABEL):
            return item
        found = next_owner(api, item)
        if found is None:
            return None
        item = found
    return item


def next_owner(api: Api, item: Json) -> Json | None:
    """The owner of an object that has owners; None: that owner is gone.

    Among several owners, it is the one that controls the object, or else the first.
    """
    owners = parts(part(item, "metadata"), "ownerReferences")
    by = next((each for each in owners if each.get("controller")), owners[0])
    namespace = str(part(item, "metadata").get("namespace") or "")
    try:
        path = api.path(by["apiVersion"], by["kind"], namespace, by["name"])
        found = api.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        return None  # The kind of the owner was removed with its definition.
    if found is None or part(found, "metadata").get("uid") != by.get("uid"):
        return None
    return {"apiVersion": by["apiVersion"], "kind": by["kind"], **found}
