"""The controller of LeaderWorkerSets (https://lws.sigs.k8s.io)."""

from sandbox.controllers.configuration import manager_configuration
from sandbox.controllers.kind import Controller
from sandbox.tools.controllers import LWS_CONTROLLER

WEBHOOK_PORT = 9451
HEALTH_PORT = 9452

LWS = Controller(
    name="lws",
    title="LeaderWorkerSet's controller",
    tool=LWS_CONTROLLER,
    manifests=("config/default",),
    roles=("lws-manager-role",),
    health_port=HEALTH_PORT,
    webhook_port=WEBHOOK_PORT,
    command=lambda place: (str(place.programs / "lws"), f"--config={place.config}"),
    configuration=lambda place: manager_configuration(
        "config.lws.x-k8s.io/v1alpha1", place, WEBHOOK_PORT, HEALTH_PORT
    ),
    probe={
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {
            "leaderWorkerTemplate": {
                "workerTemplate": {"spec": {"containers": [{"name": "any", "image": "any"}]}}
            }
        },
    },
)
