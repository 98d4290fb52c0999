"""Controller `trainer`: Kubeflow Trainer 2, for the topology `trainjob`. It needs JobSet.

Its project publishes the parts of a kustomization. This module makes the objects of its overlay
`manager`, without JobSet, which is a separate controller here. The ClusterTrainingRuntimes are in
another overlay and are not installed, because a run of disttrain has its own runtime.
https://www.kubeflow.org/docs/components/trainer/operator-guides/installation/
"""

import json

from infra.controllers import jobset
from infra.controllers.kind import ControllerKind, PinnedFile, PinnedManifests
from infra.controllers.manifests import containers_of, only, put_into_namespace
from infra.objects import Manifest

VERSION = "2.3.0"
NAMESPACE = "kubeflow-system"
GROUP = "trainer.kubeflow.org"
MANAGER = "kubeflow-trainer-controller-manager"
CONFIG, CONFIG_FILE = "kubeflow-trainer-config", "controller_manager_config.yaml"
# Trainer's webhook does not check a runtime whose label with this key has the value `disabled`.
UNCHECKED = {"key": "trainer.kubeflow.org/webhook-validation", "operator": "NotIn"}
_FILES = {
    "crds/trainer.kubeflow.org_clustertrainingruntimes.yaml": (
        "ec84dc3388fcdbe8c61d3c247a773d14458dd9438e995bea8e50d2a18080eef9"
    ),
    "crds/trainer.kubeflow.org_trainingruntimes.yaml": (
        "69b8dbdf60a18e28cddcc2b8dfc4ce72a943e14b531b9389d593118faee4919f"
    ),
    "crds/trainer.kubeflow.org_trainjobs.yaml": (
        "a742cafc5b5582640c7e0b7467c024fc237256fbca5ba0a9f0531dfb66d64416"
    ),
    "manager/manager.yaml": "d12d9dc1935eab2ee0f3221195fb15a5ae15ed0d52c19a260414992e2e419b57",
    f"manager/{CONFIG_FILE}": "68884810ac5c36150cfc4b9966f363a895124169c09e5cec0a012d97a1b4311c",
    "rbac/role.yaml": "c879d876110206c7c44d9a43b1cbd970b04466f78bc2f787615c1bebb7eb0381",
    "rbac/role_binding.yaml": "3445db7c083b4bcecefca62e98c67dc6d0de69eb044e24de7960a74161bc8d9c",
    "rbac/service_account.yaml": "6f7cdb9a596d616b9a268bae8ddf35ef5ab4e710ce8b0142387c9077a909f426",
    "rbac/public_configmap_role.yaml": (
        "8ff07c55c560d244e558f442c860613a25cf898529c0e6bf2942fc9b8769afbf"
    ),
    "rbac/public_configmap_role_binding.yaml": (
        "439b74d87763ba12c8a4c4f85ea3708eee358d340cfc8ef0e3596d8bd97266c8"
    ),
    "webhook/manifests.yaml": "62bd53f060dd81e3af279741f75dc63e27f2556ba41fef323aec205bb09f7b90",
}


def change(objects: list[Manifest]) -> list[Manifest]:
    """The objects of the overlay `manager`, from those of the base."""
    configuration = next(item for item in objects if item["kind"] == "Configuration")
    made = [item for item in objects if item is not configuration]
    for kind, name in (("Mutating", "defaulter"), ("Validating", "validator")):
        hooks = only(made, f"{kind}WebhookConfiguration", f"{kind.lower()}-webhook-configuration")
        hooks["metadata"] = {"name": f"{name}.{GROUP}"}
        for hook in hooks["webhooks"]:
            hook["clientConfig"]["service"]["name"] = MANAGER
            if "trainingruntime." in hook["name"]:
                expression = {**UNCHECKED, "values": ["disabled"]}
                hook["objectSelector"] = {"matchExpressions": [expression]}
    deployment = only(made, "Deployment", MANAGER)
    (container,) = containers_of(deployment)
    container["image"] += f":v{VERSION}"
    container["args"] = [f"--config=/{CONFIG_FILE}", "--zap-log-level=2"]
    mount = {"mountPath": f"/{CONFIG_FILE}", "subPath": CONFIG_FILE, "readOnly": True}
    container["volumeMounts"].insert(0, {"name": CONFIG, **mount})
    volume = {"name": CONFIG, "configMap": {"name": CONFIG}}
    deployment["spec"]["template"]["spec"]["volumes"].insert(0, volume)
    made += [
        _object("ConfigMap", CONFIG, data={CONFIG_FILE: json.dumps(configuration, indent=1)}),
        # Users' programs read Trainer's version from this ConfigMap.
        _object(
            "ConfigMap", "kubeflow-trainer-public", data={"kubeflow_trainer_version": f"v{VERSION}"}
        ),
        _object("Secret", "kubeflow-trainer-webhook-cert", type="Opaque"),  # Trainer fills it
    ]
    put_into_namespace(made, NAMESPACE)
    return made


def _object(kind: str, name: str, **fields: object) -> Manifest:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}


KIND = ControllerKind(
    name="trainer",
    title="Kubeflow Trainer",
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
    namespace=NAMESPACE,
    groups=(GROUP,),
    definitions=tuple(
        f"{plural}.{GROUP}"
        for plural in ("clustertrainingruntimes", "trainingruntimes", "trainjobs")
    ),
    probe={
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "disttrain-trial", "namespace": "default"},
        "spec": {"template": {"spec": {"replicatedJobs": []}}},
    },
    needs=jobset.KIND.name,
)
