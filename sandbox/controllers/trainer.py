"""Kubeflow Trainer's controller, of TrainJobs; it needs JobSet's controller beside it.

https://www.kubeflow.org/docs/components/trainer/
"""

from collections.abc import Mapping
from typing import Any

from sandbox.controllers.kind import Controller, Place
from sandbox.tools.controllers import TRAINER_CONTROLLER

WEBHOOK_PORT = 9444
HEALTH_PORT = 9441


def _configuration(place: Place) -> Mapping[str, Any]:
    return {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": WEBHOOK_PORT},
        "metrics": {"bindAddress": "0"},  # none
        "health": {"healthProbeBindAddress": f"{place.address}:{HEALTH_PORT}"},
    }


TRAINER = Controller(
    name="trainer",
    title="Kubeflow Trainer's controller",
    tool=TRAINER_CONTROLLER,
    manifests=("manifests/base/crds", "manifests/base/rbac", "manifests/base/webhook"),
    roles=("kubeflow-trainer-controller-manager",),
    health_port=HEALTH_PORT,
    webhook_port=WEBHOOK_PORT,
    command=lambda place: (
        str(place.programs / "trainer-controller-manager"),
        f"--config={place.config}",
    ),
    configuration=_configuration,
    probe={
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"template": {"spec": {"replicatedJobs": []}}},
    },
)
