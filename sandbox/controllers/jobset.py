"""JobSet's controller (https://jobset.sigs.k8s.io)."""

from collections.abc import Mapping
from typing import Any

from sandbox.controllers.controller import Controller, Place
from sandbox.toolchain import JOBSET_CONTROLLER

WEBHOOK_PORT = 9443
HEALTH_PORT = 9440


def _configuration(place: Place) -> Mapping[str, Any]:
    return {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {
            "host": "127.0.0.1",
            "port": WEBHOOK_PORT,
            "certDir": str(place.certificates),
        },
        "metrics": {"bindAddress": "0"},  # none
        "health": {"healthProbeBindAddress": f"{place.address}:{HEALTH_PORT}"},
    }


JOBSET = Controller(
    name="jobset",
    title="JobSet's controller",
    tool=JOBSET_CONTROLLER,
    manifests=("config/default",),
    roles=("jobset-manager-role",),
    health_port=HEALTH_PORT,
    webhook_port=WEBHOOK_PORT,
    command=lambda place: (str(place.programs / "jobset"), f"--config={place.config}"),
    configuration=_configuration,
    probe={
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"replicatedJobs": []},
    },
)
