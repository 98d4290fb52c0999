"""What a controller's published manifests become: the objects, in the order in which they are made.

Everything here is pure; infra/platform/controller_files.py gets the files.
"""

from collections.abc import Iterable
from typing import Any

import yaml

from infra.controllers.kind import TOLERATIONS, ControllerKind, PinnedManifests
from infra.objects import Manifest

# The parser in C is ten times as fast, and the definitions are megabytes.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEFINITION = "CustomResourceDefinition"
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
WORKLOADS = ("DaemonSet", "Deployment", "Job", "StatefulSet")
# Kinds of controllers' manifests that lie in no namespace.
OF_THE_CLUSTER = (DEFINITION, "ClusterRole", "ClusterRoleBinding", "Namespace", *WEBHOOKS)
STAGES = 4


def objects_of(kind: ControllerKind, texts: Iterable[str]) -> list[Manifest]:
    """The objects of a controller, definitions first and webhooks last.

    Its namespace is not among them, because the platform makes it; nor is any other one.

    Args:
        kind: the controller, which comes by manifests.
        texts: the contents of its files, in their order.

    Raises:
        yaml.YAMLError: a text is no YAML.
    """
    assert isinstance(kind.source, PinnedManifests), kind.name
    read = kind.source.change(parsed(texts))
    made = [item for item in read if item["kind"] != "Namespace"]
    return sorted((_installed(item) for item in made), key=stage)


def parsed(texts: Iterable[str]) -> list[Manifest]:
    """The objects in files of YAML. Raises yaml.YAMLError."""
    return [item for text in texts for item in yaml.load_all(text, _LOADER) if item]


def stage(manifest: Manifest) -> int:
    """When an object is made, from 0 on: after those of all lower stages are there.

    Programs end where their kinds are not known, and a webhook that is there before the program
    behind it refuses the program's own objects.
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
    """Change the objects as kustomize's field `namespace` does: also where they name others."""
    for item in objects:
        if item["kind"] not in OF_THE_CLUSTER:
            item["metadata"]["namespace"] = namespace
        for subject in item.get("subjects", ()):
            if subject["kind"] == "ServiceAccount":
                subject["namespace"] = namespace
        for hook in item.get("webhooks", ()):
            hook["clientConfig"]["service"]["namespace"] = namespace


def containers_of(workload: Manifest) -> list[dict[str, Any]]:
    """All containers of a workload's pods, which may be changed."""
    spec = workload["spec"]["template"]["spec"]
    return [*spec.get("initContainers", ()), *spec["containers"]]


def _installed(manifest: Manifest) -> Manifest:
    """The object without what the cluster fills in, and with pods that find a node.

    An image that is on the node already is used: its tag names one version.
    """
    made = {key: value for key, value in manifest.items() if key != "status"}
    about = dict(made["metadata"])
    about.pop("creationTimestamp", None)
    made["metadata"] = about
    if "aggregationRule" in made:
        made.pop("rules", None)  # Kubernetes writes them
    if made["kind"] in WORKLOADS:
        spec = made["spec"]["template"]["spec"]
        spec["tolerations"] = [*spec.get("tolerations", ()), *TOLERATIONS]
        for container in containers_of(made):
            container["imagePullPolicy"] = "IfNotPresent"
    return made
