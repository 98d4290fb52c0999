"""Lists all kinds of objects that a namespace can contain, as the API server names them."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from infra.command_line import Say
from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.objects import Json, part, parts

CORE = "v1"


@dataclass(frozen=True)
class NamespacedKind:
    """A kind whose objects are in namespaces and can be listed.

    Args:
        api_version: the API version, such as `apps/v1`.
        kind: the kind, such as `Deployment`.
        plural: the kind's name in paths, such as `deployments`.
    """

    api_version: str
    kind: str
    plural: str

    @property
    def group(self) -> str:
        """The API group; empty: the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def definition(self) -> str:
        """The name of the kind's CustomResourceDefinition, if it has one."""
        return f"{self.plural}.{self.group}"

    def path(self, namespace: str) -> str:
        """The path of the kind's objects in a namespace."""
        return f"{root(self.api_version)}/namespaces/{namespace}/{self.plural}"


def root(api_version: str) -> str:
    """The path at which the API server lists the kinds of an API version."""
    return f"/api/{api_version}" if api_version == CORE else f"/apis/{api_version}"


def namespaced_kinds(api: Api, skipped: Collection[str], unseen: Say) -> Iterator[NamespacedKind]:
    """Yield each kind once, if possible in the version that its group prefers.

    Args:
        api: the cluster.
        skipped: API versions that are left out.
        unseen: is called for each API version that gives no list of its kinds, with the reason.

    Raises:
        ApiError: the cluster does not list its API groups.
        UnreachableError: it does not answer at all.
    """
    yield from listable_kinds(CORE, api.request("GET", root(CORE)))
    for group in parts(api.request("GET", "/apis"), "groups"):
        found = dict[str, NamespacedKind]()
        for api_version in versions_of(group):
            if api_version in skipped:
                continue
            try:
                listed = api.get(root(api_version)) or {}  # None: the version is gone meanwhile
            except (ApiError, UnreachableError) as error:
                unseen(f"{api_version} ({error})")
                continue
            for kind in listable_kinds(api_version, listed):
                found.setdefault(kind.plural, kind)
        yield from found.values()


def versions_of(group: Json) -> list[str]:
    """The versions of an API group, such as `apps/v1`, with the preferred one first.

    This function is pure.
    """
    preferred = str(part(group, "preferredVersion").get("groupVersion") or "")
    listed = [str(each["groupVersion"]) for each in parts(group, "versions")]
    return sorted(listed, key=lambda version: version != preferred)


def listable_kinds(api_version: str, listed: Json) -> list[NamespacedKind]:
    """The kinds of an API version whose objects are in namespaces and can be listed.

    This function is pure.

    Args:
        api_version: the API version, such as `apps/v1`.
        listed: the API server's APIResourceList for this version.
    """
    return [
        NamespacedKind(api_version, str(found["kind"]), str(found["name"]))
        for found in parts(listed, "resources")
        if found.get("namespaced")
        and "/" not in found["name"]
        and "list" in (found.get("verbs") or ())
    ]
