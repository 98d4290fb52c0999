"""Kubeflow's Training Operator, of PyTorchJobs.

It makes certificates by itself, keeps them in a Secret and waits until that Secret is mounted. Here
there are our certificates instead, and its webhooks are called by these.
https://www.kubeflow.org/docs/components/trainer/legacy-v1/
"""

from sandbox.controllers.kind import Controller
from sandbox.tools.controllers import PYTORCHJOB_CONTROLLER

WEBHOOK_PORT = 9445
HEALTH_PORT = 9442
NAMESPACE = "kube-system"  # where its Secret is
SECRET = "training-operator-webhook-cert"

TRAINING_OPERATOR = Controller(
    name="training-operator",
    title="Kubeflow's Training Operator",
    tool=PYTORCHJOB_CONTROLLER,
    manifests=("manifests/overlays/standalone",),
    roles=("training-operator",),
    # Its definition of MPIJobs is of version 1, and has the name of the MPI Operator's.
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
