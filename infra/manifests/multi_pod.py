"""The multi-pod topology: a StatefulSet whose ordinals are the node ranks. Pure."""

from typing import Any

from infra.labels import COMPONENT_LABEL, metadata
from infra.manifests.names import HEADLESS_SERVICE, MASTER_PORT, MULTI_POD_SET
from infra.manifests.training_pod import (
    TRAINING,
    training_revision,
    training_template,
    with_revision,
)
from infra.settings import Settings

SELECTOR = {"app.kubernetes.io/name": "disttrain", COMPONENT_LABEL: TRAINING}


def multi_pod_set(settings: Settings, config_map: str) -> dict[str, Any]:
    """All pods start at once, and change at once: a rank alone can do nothing."""
    revision = training_revision(settings, config_map)
    return {
        "metadata": metadata(
            MULTI_POD_SET,
            settings.namespace,
            TRAINING,
            settings.stack,
            revision,
            {"pulumi.com/skipAwait": "true"},
        ),
        "spec": {
            "replicas": settings.compute.pods,
            "serviceName": HEADLESS_SERVICE,
            "podManagementPolicy": "Parallel",
            # a rolling update would wait for one new rank to be ready without its peers
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": SELECTOR},
            "template": with_revision(training_template(settings, config_map), revision),
        },
    }


def headless_service(settings: Settings) -> dict[str, Any]:
    """Gives each rank a name, also before it is ready: the ranks meet in order to get ready."""
    return {
        "metadata": metadata(HEADLESS_SERVICE, settings.namespace, TRAINING, settings.stack),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": SELECTOR,
            "ports": [{"name": "rendezvous", "port": MASTER_PORT, "targetPort": MASTER_PORT}],
        },
    }
