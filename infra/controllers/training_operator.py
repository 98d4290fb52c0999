"""Controller `training-operator`: Kubeflow's Training Operator 1, for the topology `pytorchjob`.

Its project publishes the parts of a kustomization. This module makes the objects of its overlay
`standalone`, with three differences. The operator serves only PyTorchJobs, because its definition
of MPIJobs has the same name as that of the MPI Operator. So only the definition and the webhook of
PyTorchJobs are installed. And the operator has its own namespace: others may have objects in the
usual namespace `kubeflow`, which would be deleted with it.
https://www.kubeflow.org/docs/components/trainer/legacy-v1/installation/
"""

from infra.controllers.kind import ControllerKind, PinnedFile, PinnedManifests
from infra.controllers.manifests import containers_of, only, put_into_namespace
from infra.objects import Manifest

VERSION = "1.9.4"
NAME = "training-operator"
IMAGE_TAG = "v1-93c5489"  # the tag in the overlay of this version
SERVED = ["--enable-scheme=pytorchjob"]
WEBHOOK = "ValidatingWebhookConfiguration"
_FILES = {
    "crds/kubeflow.org_pytorchjobs.yaml": (
        "8b8a8a719cc94173169290251e817f7ac2bb425c20b6c2fa813397bcf4e932ed"
    ),
    "rbac/cluster-role-binding.yaml": (
        "1ceb86a84c06df8c2f407a63bf622006688d5a471113f6c3799ce9ff02646a5e"
    ),
    "rbac/role.yaml": "59ea515dae86e0fd479ac8f4b88a17c10ee21f8da054a13edd5e120ed1f01d90",
    "rbac/service-account.yaml": "01459d2413879864fc0c4d792e982aa6cb5aede31a9004c28ede920933846a61",
    "webhook/manifests.yaml": "abc4ea6710c0eb760f30dff04a9e6a34f0aad351bf38bfaa878c27c0d5d00c63",
    "service.yaml": "0f569f381983ee755057b6def5c6efbb0a0035ec5164c430e4770d3b8039be29",
    "deployment.yaml": "39ceb09edbeb534c3754406ff17ad4d3aab1fa54f5475d27a25b80141eba0f42",
}


def change(objects: list[Manifest]) -> list[Manifest]:
    """The objects of the overlay, from those of the base, with the differences named above."""
    hooks = only(objects, WEBHOOK, "validating-webhook-configuration")
    hooks["metadata"] = {
        "name": "validator.training-operator.kubeflow.org",
        "labels": {"control-plane": "kubeflow-training-operator"},
    }
    hooks["webhooks"] = [
        hook for hook in hooks["webhooks"] if hook["name"].startswith("validator.pytorchjob.")
    ]
    for hook in hooks["webhooks"]:
        hook["clientConfig"]["service"]["name"] = NAME
    for container in containers_of(only(objects, "Deployment", NAME)):
        container["image"] += f":{IMAGE_TAG}"
        container["args"] = SERVED
    # The operator writes the certificate of its webhook into this Secret.
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "training-operator-webhook-cert"},
        "type": "Opaque",
    }
    made = [*objects, secret]
    put_into_namespace(made, NAME)
    return made


KIND = ControllerKind(
    name=NAME,
    title="Kubeflow's Training Operator",
    version=VERSION,
    source=PinnedManifests(
        files=tuple(
            PinnedFile(
                f"https://raw.githubusercontent.com/kubeflow/trainer/v{VERSION}/manifests/base/{path}",
                sha256,
            )
            for path, sha256 in _FILES.items()
        ),
        change=change,
    ),
    namespace=NAME,
    groups=("kubeflow.org/v1",),
    definitions=("pytorchjobs.kubeflow.org",),
    probe={
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "disttrain-trial", "namespace": "default"},
        "spec": {
            "pytorchReplicaSpecs": {
                "Worker": {
                    "replicas": 1,
                    "template": {"spec": {"containers": [{"name": "pytorch", "image": "any"}]}},
                }
            }
        },
    },
)
