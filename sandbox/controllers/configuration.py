"""What the configuration files of controllers that are built on controller-runtime have in common.

The library is sigs.k8s.io/controller-runtime. The fields' names are those in the controllers' own
examples.
"""

from collections.abc import Mapping
from typing import Any

from sandbox.controllers.kind import Place


def manager_configuration(
    api_version: str, place: Place, webhook_port: int, health_port: int
) -> Mapping[str, Any]:
    """The configuration of one process without leader election and without metrics.

    Its webhooks answer with certificates of the sandbox.
    """
    return {
        "apiVersion": api_version,
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {
            "host": "127.0.0.1",
            "port": webhook_port,
            "certDir": str(place.certificates),
        },
        "metrics": {"bindAddress": "0"},  # none
        "health": {"healthProbeBindAddress": f"{place.address}:{health_port}"},
    }
