"""Makes a headless Service, which gives each pod of a run its own DNS name."""

from infra.names import MASTER_PORT
from infra.objects import Manifest
from infra.workloads.run import Run


def headless_service(run: Run, name: str) -> Manifest:
    """The manifest of the Service. The pods need the name of the Service as their `subdomain`."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": run.metadata(name),
        "spec": {
            "clusterIP": "None",
            # The ranks have to find each other before they can become ready.
            "publishNotReadyAddresses": True,
            "selector": run.selector,
            "ports": [{"name": "rendezvous", "port": MASTER_PORT, "targetPort": MASTER_PORT}],
        },
    }
