"""The claims by which runs reach their data, as `disttrain status` shows them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import list_if_allowed, object_at
from infra.kube.objects import Json, is_ending, name_of, part, parts
from infra.kube.paths import CLAIMS, VOLUMES
from infra.kube.volumes.left_claims import STORAGE

BOUND, LOST = "Bound", "Lost"
ENDING = "Terminating"  # as kubectl calls it; its phase stays Bound while pods mount it
MOST_BOUND = 3  # that have a line of their own on the screen
_WHY = {
    "Pending": "it has no volume yet, and no pod can start before: docs/storage.md",
    LOST: "its volume is gone: docs/storage.md",
    ENDING: "somebody has deleted it, and no further pod can mount it: docs/storage.md",
}


@dataclass(frozen=True, order=True)
class Claim:
    """One claim.

    Args:
        namespace, name: which one; no name: nobody knows which claims there are.
        phase: Bound, Pending, Lost or Terminating; empty: it was not seen.
        size: of its volume, such as `50Gi`; empty: there is none.
        class_name: its storage class; empty: none.
        source: of a bound claim without a class, where its data is, such as `folder /srv/data`; the
            name of its volume, where that may not be read.
    """

    namespace: str
    name: str
    phase: str
    size: str = ""
    class_name: str = ""
    source: str = ""


def see_claims(api: Api, pods: Mapping[str, Sequence[Json]]) -> tuple[Claim, ...]:
    """The claims of these namespaces. Raises ApiError and UnreachableError.

    Args:
        api: the cluster.
        pods: of the training, by namespace; they say which claim they mount.
    """
    found = [claim for space, those in pods.items() for claim in _see(api, space, those)]
    return tuple(sorted(found))


def _see(api: Api, namespace: str, pods: Sequence[Json]) -> list[Claim]:
    """The claims that the pods mount; without pods, those that the platform has made."""
    path = CLAIMS.format(namespace)
    if names := claim_names(pods):
        seen = [(name, object_at(api, f"{path}/{name}")) for name in names]
        return [_claim(api, namespace, name, item) for name, item in seen if item is not None]
    items, _ = list_if_allowed(api, path, STORAGE)
    if items is None:
        return [Claim(namespace, "", "")]
    return [_claim(api, namespace, name_of(item), item) for item in items]


def claim_names(pods: Iterable[Json]) -> set[str]:
    """Names of the claims that the pods mount as data. Pure."""
    volumes = [volume for pod in pods for volume in parts(part(pod, "spec"), "volumes")]
    data = [part(volume, "persistentVolumeClaim") for volume in volumes if volume["name"] == "data"]
    return {str(claim["claimName"]) for claim in data if "claimName" in claim}


def claim_lines(claims: Iterable[Claim]) -> list[str]:
    """A line for each claim that no pod can mount, or that was not seen. Pure."""
    return [_line(claim) for claim in claims if claim.phase != BOUND]


def bound_lines(claims: Iterable[Claim]) -> list[str]:
    """A line for each claim that pods can mount: its size, and its class or where its data is.

    Of many it is one line for all. Pure.
    """
    bound = [claim for claim in claims if claim.phase == BOUND]
    if len(bound) > MOST_BOUND:
        return [f"  storage: {len(bound)} claims are {BOUND}; --json has each of them"]
    return [
        f"{_where(claim)} is {BOUND}: {', '.join(filter(None, (claim.size, _kind(claim))))}"
        for claim in bound
    ]


def _kind(claim: Claim) -> str:
    return f"storage class {claim.class_name}" if claim.class_name else claim.source


def _where(claim: Claim) -> str:
    return f"  storage: claim {claim.name} of namespace {claim.namespace}"


def _line(claim: Claim) -> str:
    if not claim.name:
        return (
            f"  storage: the claims of namespace {claim.namespace} are not known: these "
            "credentials may not list them"
        )
    if not claim.phase:
        return f"{_where(claim)} is not known: these credentials may not read it"
    return f"{_where(claim)} is {claim.phase}: {_WHY.get(claim.phase, 'docs/storage.md')}"


def _claim(api: Api, namespace: str, name: str, item: Json | str) -> Claim:
    if not isinstance(item, dict):
        return Claim(namespace, name, "")
    spec, status = part(item, "spec"), part(item, "status")
    phase = ENDING if is_ending(item) else str(status.get("phase") or "Pending")
    size = str(part(status, "capacity").get("storage") or "")
    class_name = str(spec.get("storageClassName") or "")
    volume = str(spec.get("volumeName") or "")
    asks = phase == BOUND and volume and not class_name
    source = _source(volume, object_at(api, f"{VOLUMES}/{volume}")) if asks else ""
    return Claim(namespace, name, phase, size, class_name, source)


def _source(name: str, volume: Json | str | None) -> str:
    """Where a volume has its data; its name, where it was not seen. Pure."""
    spec = part(volume, "spec") if isinstance(volume, dict) else {}
    folder = part(spec, "hostPath").get("path") or part(spec, "local").get("path")
    nfs, driver = part(spec, "nfs"), part(spec, "csi").get("driver")
    if folder:
        return f"folder {folder}"
    if nfs:
        return f"nfs {nfs.get('server')}:{nfs.get('path')}"
    return f"driver {driver}" if driver else f"volume {name}"
