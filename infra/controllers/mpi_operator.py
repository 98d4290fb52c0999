"""Controller `mpi-operator`: Kubeflow's MPI Operator, for the topology `mpijob`.

Its project publishes one file with all objects, which names the image by its tag.
https://github.com/kubeflow/mpi-operator#installation
"""

from infra.controllers.kind import ControllerKind, PinnedFile, PinnedManifests
from infra.controllers.manifests import only
from infra.objects import Manifest

VERSION = "0.8.2"
NAME = "mpi-operator"
# To resume a run, the operator changes the status of its Job. The role of this version does not
# allow that: https://github.com/kubeflow/mpi-operator/pull/830
RESUMING = {"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["update"]}


def change(objects: list[Manifest]) -> list[Manifest]:
    """The published objects, with the right to resume a run."""
    only(objects, "ClusterRole", NAME)["rules"].append(RESUMING)
    return objects


KIND = ControllerKind(
    name=NAME,
    title="Kubeflow's MPI Operator",
    version=VERSION,
    source=PinnedManifests(
        files=(
            PinnedFile(
                "https://raw.githubusercontent.com/kubeflow/mpi-operator/"
                f"v{VERSION}/deploy/v2beta1/mpi-operator.yaml",
                "a7eafe901bebde1410ae0448c2d1ada214a64b2686f6aa44e74eff978573033f",
            ),
        ),
        change=change,
    ),
    namespace=NAME,
    groups=("kubeflow.org/v2beta1",),
    definitions=("mpijobs.kubeflow.org",),
    probe={
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "disttrain-trial", "namespace": "default"},
        "spec": {"mpiReplicaSpecs": {}},
    },
)
