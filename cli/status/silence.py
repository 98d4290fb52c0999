"""Finds nodes that have stopped reporting, half a minute before Kubernetes calls them NotReady.

Each kubelet renews the Lease of its node four times in the time that the Lease is valid, which is
usually 40 s (https://kubernetes.io/docs/concepts/architecture/leases/#node-heart-beats). The time
in the Lease is by the node's own clock, which may be wrong. So the time of a renewal is taken from
the API server's own note about the change, and `now` is by the API server's clock too.

After a restart of the API server, for instance, it may have taken no renewals at all. A missing
renewal then proves nothing. So a node is called silent only while another node reports. This module
is pure.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from infra.kube.objects import Json, name_of, part, parts

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
RENEWALS = 4  # renewals in the time that a lease is valid; a constant of the kubelet
# The longest time between two renewals, as a multiple of the usual one: a kubelet varies it at
# random for each renewal.
LATEST = 1.04
# How much later a renewal may look: the API server notes times in whole seconds, and a request
# takes a moment.
LATE_SECONDS = 1.6


def silent_nodes(
    nodes: Sequence[Json], leases: Sequence[Json], now: datetime
) -> Mapping[str, float]:
    """Return the nodes whose report is overdue, with the seconds since their last report.

    Args:
        nodes: the nodes of the cluster.
        leases: the leases of the namespace kube-node-lease; empty if they may not be read.
        now: the API server's time.

    Returns:
        The seconds by the name of the node. The result is empty while no node reports, and it never
        has a node without a lease.
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
    """Return for each node the text of its last renewal; it changes with each renewal."""
    return {name_of(lease): str(part(lease, "spec").get("renewTime") or "") for lease in leases}


def _longest_seconds(lease: Json) -> float:
    """Return how old a healthy kubelet's last renewal may look: 12 s for a lease of 40 s."""
    valid = float(part(lease, "spec").get("leaseDurationSeconds") or 40)
    return valid / RENEWALS * LATEST + LATE_SECONDS


def renewed_at(lease: Json) -> datetime | None:
    """Return when the API server last took a renewal; None if it has no note of that."""
    noted = [
        str(note.get("time") or "")
        for note in parts(part(lease, "metadata"), "managedFields")
        if "f:renewTime" in part(note, "fieldsV1", "f:spec")
    ]
    return max((datetime.fromisoformat(time) for time in noted if time), default=None)
