"""Kubeflow's Training Operator, of PyTorchJobs.

The operator makes certificates itself, keeps them in a Secret, and waits until that Secret is
mounted. Here the sandbox's certificates are mounted instead, and the API server trusts those.
https://www.kubeflow.org/docs/components/trainer/legacy-v1/
"""

from sandbox.controllers.kind import Controller
from sandbox.tools.controllers import PYTORCHJOB_CONTROLLER

WEBHOOK_PORT = 9445
HEALTH_PORT = 9442
NAMESPACE = "kube-system"  # its Secret is there
SECRET = "training-operator-webhook-cert"

TRAINING_OPERATOR = Controller(
    name="training-operator",
    title="Kubeflow's Training Operator",
    tool=PYTORCHJOB_CONTROLLER,
    manifests=("manifests/overlays/standalone",),
    roles=("training-operator",),
    # Its definition of MPIJobs is of v1, and has the same name as the MPI Operator's definition.
    definitions=("pytorchjobs.kubeflow.org",),
    health_port=HEALTH_PORT,
    webhook_port=WEBHOOK_PORT,
    command=lambda place: (
        str(place.programs / "training-operator.v1"),
        "--enable-scheme=pytorchjob",
        f"--webhook-server-port={WEBHOOK_PORT}",
        "--metrics-bind-address=0",
        f"--health-probe-bind-address={place.address}:{HEALTH_PORT}",
    ),
    configuration=None,
    probe={
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {
            "pytorchReplicaSpecs": {
                "Worker": {
                    "replicas": 1,
                    "template": {"spec": {"containers": [{"name": "pytorch", "image": "any"}]}},
                }
            }
        },
    },
    objects=(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": NAMESPACE},
        },
    ),
    variables={"MY_POD_NAMESPACE": NAMESPACE},
    certificates="/tmp/k8s-webhook-server/serving-certs",
)
