"""Controller `lws`: the controller of LeaderWorkerSets, for the topology `lws`.

Its project publishes the parts of a kustomization. This module makes the objects of its overlay
`default`, with three differences. The image is that of the release; the overlay names one in a
staging registry that is deleted after some weeks
(https://github.com/kubernetes-sigs/lws/issues/823). There is one pod, as of every controller here.
And the pod requests less. The controller does not start without the definition of
DisaggregatedSets, although no run of disttrain uses them.
https://lws.sigs.k8s.io/docs/installation/
"""

import json

from infra.controllers.kind import ControllerKind, PinnedFile, PinnedManifests
from infra.controllers.manifests import DEFINITION, containers_of, only, put_into_namespace
from infra.objects import Manifest

VERSION = "0.9.0"
NAME = "lws"
NAMESPACE = "lws-system"
IMAGE = f"registry.k8s.io/lws/lws:v{VERSION}"
REQUESTS = {"cpu": "100m", "memory": "128Mi"}
LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": NAME}
DEFINITIONS = (
    "leaderworkersets.leaderworkerset.x-k8s.io",
    "disaggregatedsets.disaggregatedset.x-k8s.io",
)
SERVICE = "webhook-service"
CONFIG, CONFIG_FILE = "manager-config", "controller_manager_config.yaml"
# With this selector, the API server calls the webhooks only for pods of LeaderWorkerSets.
OF_A_SET = {"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]}
_FILES = {
    "crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml": (
        "92382b4a4eac032dbbce7eb9bb1e4e7e99880a30656f90649aeb284ce9dc732a"
    ),
    "crd/bases/disaggregatedset.x-k8s.io_disaggregatedsets.yaml": (
        "bfe2965d16d93c9fb1f0acc92ad3cb00d18a8c7727496c90c71722f3c5a1c995"
    ),
    "manager/manager.yaml": "06c0c965960103b8dd3d48a55250b90c11e30649c7a68000924b329c9bd4c7f5",
    f"manager/{CONFIG_FILE}": "2c5240ccfb458acf257e131443fdd7483c5943cdcc1b843a45e7c24eec791c14",
    "rbac/service_account.yaml": "766d179fdb42c35a76f98336d646239384df8a07e6005927ab19bc84d7fcdafd",
    "rbac/role.yaml": "89a813d87b4ba6c056f6426823bc7cf0331d8ebf38828c6cf6588d0a6ce0c10b",
    "rbac/role_binding.yaml": "17a8fc3bedf9def9e09fe153886ae268529449f1324460df8f28e871b078bb8e",
    "rbac/leader_election_role.yaml": (
        "05b4a432f1a815f0ccba82cdeb208ba9e4e9a18127db05982f3e1abd684b473e"
    ),
    "rbac/leader_election_role_binding.yaml": (
        "ddeba8b4ca54c4e3147988ef276b2cf86f89398551f40f96a660ff1c1f5b5064"
    ),
    "rbac/auth_proxy_role.yaml": "b51fdf9794a62c7ab6843813d1477d7a052a91200b5c49f650e821cbcfbf90cc",
    "rbac/auth_proxy_role_binding.yaml": (
        "3a13040efef1e006ae6459777e344e59522d093712086d82dd0343f8f6a10ac0"
    ),
    "rbac/auth_proxy_client_clusterrole.yaml": (
        "e453835f39bb594073411d5ddf445b493a4955b5032d5e6c4bd647753573eee3"
    ),
    "rbac/auth_proxy_client_binding.yaml": (
        "47a16fc14b66519c5fd6a266c9622a32fcc39f4333e1134befc7a0402c6e6b4d"
    ),
    "webhook/manifests.yaml": "4918f2be82a6cbf6b7796a95124c0af0f5ce42cc4fb30e1afde0f487488605af",
    "webhook/service.yaml": "45e98053940e6bdab48c113eb0579219c4648197e05f2899b3e1394cf3f36cd7",
    "internalcert/secret.yaml": "f5b70c4590f7a8ff03edc583e84ef3150f747d1e5297af0a7db700f45e46c02c",
    "default/manager_metrics_service.yaml": (
        "5324cbe3e4e17fca2d72945113d4c000b0b8d03c19cb978f26bb11f491891c33"
    ),
}


def change(objects: list[Manifest]) -> list[Manifest]:
    """The objects of the overlay, from those of the base, with the differences named above."""
    configuration = next(item for item in objects if item["kind"] == "Configuration")
    made = [item for item in objects if item is not configuration]
    _let_it_convert(only(made, DEFINITION, DEFINITIONS[0]))
    for hook in (hook for item in made for hook in item.get("webhooks", ())):
        if hook["name"] in ("mpod.kb.io", "vpod.kb.io"):
            hook["objectSelector"] = OF_A_SET
    _set_up(only(made, "Deployment", "controller-manager"))
    text = json.dumps(configuration, indent=1)
    about = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG}}
    made.append({**about, "data": {CONFIG_FILE: text}})
    for item in made:
        _label(item)
        if item["kind"] != DEFINITION:
            _prefix_names(item)
    put_into_namespace(made, NAMESPACE)
    return made


def _let_it_convert(definition: Manifest) -> None:
    service = {"name": f"{NAME}-{SERVICE}", "namespace": NAMESPACE, "path": "/convert"}
    definition["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]},
    }


def _set_up(deployment: Manifest) -> None:
    """Apply the overlay's patches of the Deployment, and the differences named above."""
    deployment["spec"]["replicas"] = 1
    (container,) = containers_of(deployment)
    container |= {
        "image": IMAGE,
        "args": [f"--config=/{CONFIG_FILE}", "--zap-log-level=2"],
        "ports": [
            {"name": "metrics", "containerPort": 8443, "protocol": "TCP"},
            {"name": "webhook-server", "containerPort": 9443, "protocol": "TCP"},
        ],
        "volumeMounts": [
            {"name": CONFIG, "mountPath": f"/{CONFIG_FILE}", "subPath": CONFIG_FILE},
            {
                "name": "cert",
                "mountPath": "/tmp/k8s-webhook-server/serving-certs",
                "readOnly": True,
            },
        ],
        "resources": {"requests": REQUESTS},
    }
    # The controller writes its certificate into the Secret.
    secret = {"secretName": f"{NAME}-webhook-server-cert", "defaultMode": 420}
    deployment["spec"]["template"]["spec"]["volumes"] = [
        {"name": CONFIG, "configMap": {"name": f"{NAME}-{CONFIG}"}},
        {"name": "cert", "secret": secret},
    ]


def _label(item: Manifest) -> None:
    """Add the labels to an object and to its selectors, as kustomize's `commonLabels` does."""
    label_maps = [item["metadata"].setdefault("labels", {})]
    spec = item.get("spec", {})
    if item["kind"] == "Service":
        label_maps.append(spec["selector"])
    if item["kind"] == "Deployment":
        label_maps += [spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]]
    for labels in label_maps:
        labels |= LABELS


def _prefix_names(item: Manifest) -> None:
    """Prefix an object's name and the names to which it refers, like kustomize's `namePrefix`."""
    names = [item["metadata"], *item.get("subjects", ())]
    if "roleRef" in item:
        names.append(item["roleRef"])
    names += [hook["clientConfig"]["service"] for hook in item.get("webhooks", ())]
    for named in names:
        named["name"] = f"{NAME}-{named['name']}"
    if item["kind"] == "Deployment":
        pod = item["spec"]["template"]["spec"]
        pod["serviceAccountName"] = f"{NAME}-{pod['serviceAccountName']}"


KIND = ControllerKind(
    name=NAME,
    title="LeaderWorkerSet's controller",
    version=VERSION,
    source=PinnedManifests(
        files=tuple(
            PinnedFile(
                f"https://raw.githubusercontent.com/kubernetes-sigs/lws/v{VERSION}/config/{path}",
                sha256,
            )
            for path, sha256 in _FILES.items()
        ),
        change=change,
    ),
    namespace=NAMESPACE,
    groups=tuple(name.partition(".")[2] for name in DEFINITIONS),
    definitions=DEFINITIONS,
    probe={
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "disttrain-trial", "namespace": "default"},
        "spec": {
            "leaderWorkerTemplate": {
                "workerTemplate": {"spec": {"containers": [{"name": "any", "image": "any"}]}}
            }
        },
    },
)
