"""Makes the Leases by which nodes report, as the API server shows them, for tests."""

from datetime import timedelta
from typing import Any

from tests.cli.records import NOW


def lease(name: str, seconds: float, clock_seconds: float = 0.0, valid: int = 40) -> dict[str, Any]:
    """Return a Lease that was renewed `seconds` ago.

    The node's clock is `clock_seconds` ahead of the API server's clock.
    """
    at = NOW - timedelta(seconds=seconds)
    own = at + timedelta(seconds=clock_seconds)
    fields = {"f:spec": {"f:holderIdentity": {}, "f:leaseDurationSeconds": {}, "f:renewTime": {}}}
    note = {"manager": "kubelet", "fieldsV1": fields, "time": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
    of_owner = {"manager": "other", "fieldsV1": {"f:metadata": {}}, "time": f"{NOW:%FT%TZ}"}
    return {
        "metadata": {"name": name, "managedFields": [note, of_owner]},
        "spec": {"leaseDurationSeconds": valid, "renewTime": f"{own:%FT%T.%fZ}"},
    }
