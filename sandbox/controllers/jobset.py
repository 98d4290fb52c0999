"""JobSet's controller (https://jobset.sigs.k8s.io)."""

from sandbox.controllers.configuration import manager_configuration
from sandbox.controllers.kind import Controller
from sandbox.tools.controllers import JOBSET_CONTROLLER

WEBHOOK_PORT = 9443
HEALTH_PORT = 9440


JOBSET = Controller(
    name="jobset",
    title="JobSet's controller",
    tool=JOBSET_CONTROLLER,
    manifests=("config/default",),
    roles=("jobset-manager-role",),
    health_port=HEALTH_PORT,
    webhook_port=WEBHOOK_PORT,
    command=lambda place: (str(place.programs / "jobset"), f"--config={place.config}"),
    configuration=lambda place: manager_configuration(
        "config.jobset.x-k8s.io/v1alpha1", place, WEBHOOK_PORT, HEALTH_PORT
    ),
    probe={
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"replicatedJobs": []},
    },
)
