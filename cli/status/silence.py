"""Nodes that have stopped to report, half a minute before Kubernetes calls them NotReady. Pure.

Each kubelet renews a Lease of its node four times in the time that it is valid, 40 s as a rule
(https://kubernetes.io/docs/concepts/architecture/leases/#node-heart-beats). When it did so is taken
from the note that the API server itself makes of each change, because the time in the Lease is by
the node's own clock, which may be wrong. `now` is by the API server's clock too.

A renewal that did not come says nothing while the API server took none at all, as after a restart
of it. So a node is called silent only while another one reports.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from infra.kube.objects import Json, name_of, part, parts

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
RENEWALS = 4  # so many in the time that a lease is valid: the kubelet's own constant
LATEST = 1.04  # of the time between two renewals: a kubelet draws it anew for each of them
# Of a renewal: the server's note of it has whole seconds, and the request takes a moment.
LATE_SECONDS = 1.6


def silent_nodes(
    nodes: Sequence[Json], leases: Sequence[Json], now: datetime
) -> Mapping[str, float]:
    """The nodes that should have reported by now, with the seconds since they last did.

    Args:
        nodes: of the cluster.
        leases: of the namespace kube-node-lease; empty where they may not be read.
        now: the API server's time.

    Returns:
        Empty while no node reports. A node whose lease is not there is not in it.
    """
    names = {name_of(node) for node in nodes}
    since: dict[str, float] = {}
    late: set[str] = set()
    for lease in leases:
        name, renewed = name_of(lease), renewed_at(lease)
        if name not in names or renewed is None:
            continue
        since[name] = (now - renewed).total_seconds()
        if since[name] > _longest_seconds(lease):
            late.add(name)
    return {name: since[name] for name in sorted(late)} if since.keys() - late else {}


def renewals(leases: Sequence[Json]) -> Mapping[str, str]:
    """For each node what its lease says of the last renewal; another text means another one."""
    return {name_of(lease): str(part(lease, "spec").get("renewTime") or "") for lease in leases}


def _longest_seconds(lease: Json) -> float:
    """How old the last renewal of a healthy kubelet can look: 12 s for a lease of 40 s."""
    valid = float(part(lease, "spec").get("leaseDurationSeconds") or 40)
    return valid / RENEWALS * LATEST + LATE_SECONDS


def renewed_at(lease: Json) -> datetime | None:
    """When the API server last took a renewal; None where it has not noted that."""
    noted = [
        str(note.get("time") or "")
        for note in parts(part(lease, "metadata"), "managedFields")
        if "f:renewTime" in part(note, "fieldsV1", "f:spec")
    ]
    return max((datetime.fromisoformat(time) for time in noted if time), default=None)
