"""What has made an object: its owners, as Kubernetes notes them, or a release of Helm."""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError
from infra.kube.objects import Json, label, part, parts
from infra.kube.paths import NAMESPACES

_MOST_OWNERS = 5  # of an object whose owner has an owner


def is_of_release(item: Json, release: str, namespace: str) -> bool:
    """Whether Helm has made an object as a part of this release. Pure."""
    notes = part(part(item, "metadata"), "annotations")
    noted = [notes.get(f"meta.helm.sh/release-{word}") for word in ("name", "namespace")]
    return noted == [release, namespace]


def has_made(api: Api, owner: str, namespace: str) -> bool:
    """Whether that stack has made the namespace: its label is on it. Raises ApiError."""
    found = api.get(f"{NAMESPACES}/{namespace}")
    return found is not None and label(found, names.OWNER_LABEL) == owner


def first_owner(api: Api, item: Json) -> Json | None:
    """What has made an object in the end, or the object; None: its owner is gone, so it goes too.

    An owner with a label of an owner of ours is the end of the search.
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
    """What has made an object that names its owners; None: that is gone."""
    owners = parts(part(item, "metadata"), "ownerReferences")
    by = next((each for each in owners if each.get("controller")), owners[0])
    namespace = str(part(item, "metadata").get("namespace") or "")
    try:
        path = api.path(by["apiVersion"], by["kind"], namespace, by["name"])
        found = api.get(path)
    except ApiError as error:
        if error.status != 404:
            raise
        return None  # the kind has gone with its definition
    if found is None or part(found, "metadata").get("uid") != by.get("uid"):
        return None
    return {"apiVersion": by["apiVersion"], "kind": by["kind"], **found}
