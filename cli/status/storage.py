"""The claims by which runs reach their data, as `disttrain status` shows them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infra.kube.api import Api
from infra.kube.findings import list_if_allowed, object_at
from infra.kube.left_claims import CLAIMS, STORAGE
from infra.kube.objects import Json, name_of, part, parts

BOUND = "Bound"
_WHY = {
    "Pending": "it has no volume yet, and no pod can start before: docs/storage.md",
    "Lost": "its volume is gone: docs/storage.md",
}


@dataclass(frozen=True, order=True)
class Claim:
    """One claim.

    Args:
        namespace, name: which one; no name: nobody knows which claims there are.
        phase: Bound, Pending or Lost; empty: it was not seen.
        size: of its volume, such as `50Gi`; empty: there is none.
        class_name: its storage class; empty: none.
    """

    namespace: str
    name: str
    phase: str
    size: str = ""
    class_name: str = ""


def see_claims(api: Api, pods: Mapping[str, Sequence[Json]]) -> tuple[Claim, ...]:
    """The claims of these namespaces. Raises ApiError and UnreachableError.

    Args:
        api: the cluster.
        pods: of the training, by namespace; they say which claim they mount.
    """
    found = [claim for space, those in pods.items() for claim in _see(api, space, those)]
    return tuple(sorted(found))


def _see(api: Api, namespace: str, pods: Sequence[Json]) -> list[Claim]:
    """Those that the pods mount; without pods those that the platform has made."""
    path = CLAIMS.format(namespace)
    if names := claim_names(pods):
        seen = [(name, object_at(api, f"{path}/{name}")) for name in names]
        return [_claim(namespace, name, item) for name, item in seen if item is not None]
    items, _ = list_if_allowed(api, path, STORAGE)
    if items is None:
        return [Claim(namespace, "", "")]
    return [_claim(namespace, name_of(item), item) for item in items]


def claim_names(pods: Iterable[Json]) -> set[str]:
    """Of the volumes that the pods mount as data. Pure."""
    volumes = [volume for pod in pods for volume in parts(part(pod, "spec"), "volumes")]
    data = [part(volume, "persistentVolumeClaim") for volume in volumes if volume["name"] == "data"]
    return {str(claim["claimName"]) for claim in data if "claimName" in claim}


def claim_lines(claims: Iterable[Claim]) -> list[str]:
    """A line for each claim that no pod can mount, or that was not seen. Pure."""
    return [_line(claim) for claim in claims if claim.phase != BOUND]


def _line(claim: Claim) -> str:
    if not claim.name:
        return (
            f"  storage: the claims of namespace {claim.namespace} are not known: these "
            "credentials may not list them"
        )
    where = f"  storage: claim {claim.name} of namespace {claim.namespace}"
    if not claim.phase:
        return f"{where} is not known: these credentials may not read it"
    return f"{where} is {claim.phase}: {_WHY.get(claim.phase, 'docs/storage.md')}"


def _claim(namespace: str, name: str, item: Json | str) -> Claim:
    if not isinstance(item, dict):
        return Claim(namespace, name, "")
    size = str(part(item, "status", "capacity").get("storage") or "")
    class_name = str(part(item, "spec").get("storageClassName") or "")
    return Claim(
        namespace, name, str(part(item, "status").get("phase") or "Pending"), size, class_name
    )
