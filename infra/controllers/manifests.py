"""Turns a controller's published manifests into the objects that are made, in their order.

The functions have no side effects, but they may change the objects that they get. The files come
from infra/platform/controller_files.py.
"""

from collections.abc import Iterable
from typing import Any

import yaml

from infra.controllers.kind import TOLERATIONS, ControllerKind, PinnedManifests
from infra.objects import Manifest

# The parser that is written in C is ten times as fast, and the definitions have megabytes.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEFINITION = "CustomResourceDefinition"
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
WORKLOADS = ("DaemonSet", "Deployment", "Job", "StatefulSet")
# The kinds in controllers' manifests whose objects are in no namespace.
OF_THE_CLUSTER = (DEFINITION, "ClusterRole", "ClusterRoleBinding", "Namespace", *WEBHOOKS)
STAGES = 4


def objects_of(kind: ControllerKind, texts: Iterable[str]) -> list[Manifest]:
    """The objects of a controller, definitions first and webhooks last.

    Namespaces are left out. The platform makes the controller's namespace.

    Args:
        kind: a controller that is installed from manifests.
        texts: the contents of its files, in their order.

    Raises:
        yaml.YAMLError: A text is not YAML.
    """
    assert isinstance(kind.source, PinnedManifests), kind.name
    read = kind.source.change(parsed(texts))
    made = [item for item in read if item["kind"] != "Namespace"]
    return sorted((_installed(item) for item in made), key=stage)


def parsed(texts: Iterable[str]) -> list[Manifest]:
    """The objects in files of YAML. Raises yaml.YAMLError."""
    return [item for text in texts for item in yaml.load_all(text, _LOADER) if item]


def stage(manifest: Manifest) -> int:
    """The stage in which an object is made, from 0 on. All objects of lower stages are made before.

    The controllers' programs end if the cluster does not know their kinds. A webhook that is made
    before the program behind it runs would refuse the program's own objects.
    """
    kind = manifest["kind"]
    if kind == DEFINITION:
        return 0
    if kind in WEBHOOKS:
        return STAGES - 1
    return 2 if kind in WORKLOADS else 1


def only(objects: Iterable[Manifest], kind: str, name: str) -> Manifest:
    """The one object of this kind and name."""
    (found,) = (
        item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name)
    )
    return found


def put_into_namespace(objects: Iterable[Manifest], namespace: str) -> None:
    """Change the objects as kustomize's field `namespace` does, including references to others."""
    for item in objects:
        if item["kind"] not in OF_THE_CLUSTER:
            item["metadata"]["namespace"] = namespace
        for subject in item.get("subjects", ()):
            if subject["kind"] == "ServiceAccount":
                subject["namespace"] = namespace
        for hook in item.get("webhooks", ()):
            hook["clientConfig"]["service"]["namespace"] = namespace


def containers_of(workload: Manifest) -> list[dict[str, Any]]:
    """All containers of a workload's pods. The caller may change them in place."""
    spec = workload["spec"]["template"]["spec"]
    return [*spec.get("initContainers", ()), *spec["containers"]]


def _installed(manifest: Manifest) -> Manifest:
    """The object without fields that the cluster fills in, and with tolerations for its pods.

    The pods use an image that is already on the node, because its tag names one version.
    """
    made = {key: value for key, value in manifest.items() if key != "status"}
    about = dict(made["metadata"])
    about.pop("creationTimestamp", None)
    made["metadata"] = about
    if "aggregationRule" in made:
        made.pop("rules", None)  # Kubernetes fills them in
    if made["kind"] in WORKLOADS:
        spec = made["spec"]["template"]["spec"]
        spec["tolerations"] = [*spec.get("tolerations", ()), *TOLERATIONS]
        for container in containers_of(made):
            container["imagePullPolicy"] = "IfNotPresent"
    return made
