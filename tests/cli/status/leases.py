"""Leases of nodes, as the API server shows them."""

from datetime import timedelta
from typing import Any

from tests.cli.records import NOW


def lease(name: str, seconds: float, clock_seconds: float = 0.0, valid: int = 40) -> dict[str, Any]:
    """Renewed so long ago, by a node whose clock is before that of the API server."""
    at = NOW - timedelta(seconds=seconds)
    own = at + timedelta(seconds=clock_seconds)
    fields = {"f:spec": {"f:holderIdentity": {}, "f:leaseDurationSeconds": {}, "f:renewTime": {}}}
    note = {"manager": "kubelet", "fieldsV1": fields, "time": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
    of_owner = {"manager": "other", "fieldsV1": {"f:metadata": {}}, "time": f"{NOW:%FT%TZ}"}
    return {
        "metadata": {"name": name, "managedFields": [note, of_owner]},
        "spec": {"leaseDurationSeconds": valid, "renewTime": f"{own:%FT%T.%fZ}"},
    }
