"""Reads and describes the claims through which runs reach their data, for `disttrain status`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import list_if_allowed, object_at
from infra.kube.objects import Json, is_ending, name_of, part, parts
from infra.kube.paths import CLAIMS, VOLUMES
from infra.kube.volumes.left_claims import STORAGE

BOUND, LOST = "Bound", "Lost"
ENDING = "Terminating"  # kubectl's word; the claim's phase stays Bound while pods mount it
MOST_BOUND = 3  # if more claims are bound, they share one line on the screen
_WHY = {
    "Pending": "it has no volume yet, and no pod can start before: docs/storage.md",
    LOST: "its volume is gone: docs/storage.md",
    ENDING: "somebody has deleted it, and no further pod can mount it: docs/storage.md",
}


@dataclass(frozen=True, order=True)
class Claim:
    """A claim.

    Args:
        namespace, name: the namespace and the name. The name is empty if the claims of the
            namespace may not be listed.
        phase: Bound, Pending, Lost or Terminating; empty if the claim may not be read.
        size: the size of its volume, such as `50Gi`; empty if it has none.
        class_name: its storage class; empty if it has none.
        source: for a bound claim without a class, the place of its data, such as
            `folder /srv/data`; or the name of its volume, if the volume may not be read.
    """

    namespace: str
    name: str
    phase: str
    size: str = ""
    class_name: str = ""
    source: str = ""


def see_claims(api: Api, pods: Mapping[str, Sequence[Json]]) -> tuple[Claim, ...]:
    """Read the claims of these namespaces. It raises ApiError and UnreachableError.

    Args:
        api: the cluster.
        pods: the training pods by namespace; their specs name the claims that they mount.
    """
    found = [claim for space, those in pods.items() for claim in _see(api, space, those)]
    return tuple(sorted(found))


def _see(api: Api, namespace: str, pods: Sequence[Json]) -> list[Claim]:
    """Read the claims that the pods mount; without pods, the claims that the platform has made."""
    path = CLAIMS.format(namespace)
    if names := claim_names(pods):
        seen = [(name, object_at(api, f"{path}/{name}")) for name in names]
        return [_claim(api, namespace, name, item) for name, item in seen if item is not None]
    items, _ = list_if_allowed(api, path, STORAGE)
    if items is None:
        return [Claim(namespace, "", "")]
    return [_claim(api, namespace, name_of(item), item) for item in items]


def claim_names(pods: Iterable[Json]) -> set[str]:
    """Return the names of the claims that the pods mount as data. This function is pure."""
    volumes = [volume for pod in pods for volume in parts(part(pod, "spec"), "volumes")]
    data = [part(volume, "persistentVolumeClaim") for volume in volumes if volume["name"] == "data"]
    return {str(claim["claimName"]) for claim in data if "claimName" in claim}


def claim_lines(claims: Iterable[Claim]) -> list[str]:
    """Return a line for each claim that is not bound, or could not be read.

    This function is pure.
    """
    return [_line(claim) for claim in claims if claim.phase != BOUND]


def bound_lines(claims: Iterable[Claim]) -> list[str]:
    """Return a line for each bound claim: its size, and its class or the place of its data.

    More than MOST_BOUND claims share one line. This function is pure.
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
    """Return where a volume has its data, or its name if it could not be read.

    This function is pure.
    """
    spec = part(volume, "spec") if isinstance(volume, dict) else {}
    folder = part(spec, "hostPath").get("path") or part(spec, "local").get("path")
    nfs, driver = part(spec, "nfs"), part(spec, "csi").get("driver")
    if folder:
        return f"folder {folder}"
    if nfs:
        return f"nfs {nfs.get('server')}:{nfs.get('path')}"
    return f"driver {driver}" if driver else f"volume {name}"
