"""Kueue's controller (https://kueue.sigs.k8s.io)."""

from collections.abc import Mapping
from typing import Any

from sandbox.controllers.configuration import manager_configuration
from sandbox.controllers.kind import Controller, Place
from sandbox.tools.controllers import KUEUE_CONTROLLER

WEBHOOK_PORT = 9446
HEALTH_PORT = 9447
# Kueue serves its metrics over HTTPS, with its webhooks' certificate, to those who may read the
# cluster's non-resource URL /metrics.
METRICS_PORT = 9450


def _configuration(place: Place) -> Mapping[str, Any]:
    common = manager_configuration(
        "config.kueue.x-k8s.io/v1beta2", place, WEBHOOK_PORT, HEALTH_PORT
    )
    return {
        **common,
        "metrics": {"bindAddress": f"{place.address}:{METRICS_PORT}"},
        "integrations": {
            "frameworks": [
                "batch/job",
                "jobset.x-k8s.io/jobset",
                "trainer.kubeflow.org/trainjob",
                "kubeflow.org/pytorchjob",
                "kubeflow.org/mpijob",
            ]
        },
        # VisibilityOnDemand keeps its certificate in a folder of Kueue's image. MultiKueue needs
        # further clusters, and rights in a namespace of its own.
        "featureGates": {"VisibilityOnDemand": False, "MultiKueue": False},
    }


# A shell stays as Kueue's parent, because the sandbox recognizes a process by the program that it
# started.
START = """\
unshare --mount sh -c '
    mount -t tmpfs -o size=64k none /etc &&
    mkdir -p /etc/kueue/metrics &&
    ln -s "$2" /etc/kueue/metrics/certs &&
    exec "$1" --config="$3"
' sh "$@" &
trap 'kill $!' TERM
wait
wait
"""


def _command(place: Place) -> tuple[str, ...]:
    """Run Kueue in a mount namespace where its certificates have the same path as in a pod.

    The path is fixed in the program. It is below /etc, from which the program needs nothing else.
    """
    program = str(place.programs / "kueue")
    return ("sh", "-c", START, "sh", program, str(place.certificates), str(place.config))


KUEUE = Controller(
    name="kueue",
    title="Kueue's controller",
    tool=KUEUE_CONTROLLER,
    manifests=("config/default",),
    roles=("kueue-manager-role", "kueue-metrics-auth-role"),
    health_port=HEALTH_PORT,
    webhook_port=WEBHOOK_PORT,
    command=_command,
    configuration=_configuration,
    probe={
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "probe"},
        "spec": {"namespaceSelector": {}},
    },
)
