"""Kubeflow's MPI Operator, of MPIJobs (https://www.kubeflow.org/docs/components/trainer/).

It has no webhooks. It answers at its default port whether it is ready. The namespace of its leader
election's Lease comes from its command line.
"""

from sandbox.controllers.kind import Controller
from sandbox.tools.controllers import MPIJOB_CONTROLLER

NAMESPACE = "kube-system"  # its Lease is there

MPI_OPERATOR = Controller(
    name="mpi-operator",
    title="Kubeflow's MPI Operator",
    tool=MPIJOB_CONTROLLER,
    manifests=("manifests/base",),
    roles=("mpi-operator",),
    # The role of 0.8.2 lacks a right that resuming a run needs. The fix came after that version:
    # https://github.com/kubeflow/mpi-operator/pull/830
    more_rules=({"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["update"]},),
    health_port=8080,
    health_path="/healthz",
    webhook_port=0,
    command=lambda place: (
        str(place.programs / "mpi-operator"),
        f"--lock-namespace={NAMESPACE}",
    ),
    configuration=None,
    probe={
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"mpiReplicaSpecs": {}},
    },
    objects=(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "mpi-operator", "namespace": NAMESPACE},
        },
    ),
)
