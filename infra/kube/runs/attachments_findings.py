"""Checks whether the second networks that a pod names for Multus exist. It changes nothing.

Without this check, the pods would wait in ContainerCreating, and `pulumi up` until its time limit.
"""

import json
from collections.abc import Iterator
from typing import cast

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, object_at
from infra.kube.controllers.served import serves
from infra.kube.objects import Json, part
from infra.kube.paths import NAMESPACES
from infra.names import ATTACHMENTS_ANNOTATION

API_VERSION, KIND = "k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition"
PATH = f"/apis/{API_VERSION}/namespaces/{{}}/network-attachment-definitions/{{}}"


def attachments_findings(api: Api, namespace: str, pod: Json) -> Findings:
    """Check the networks in a pod's annotation. Raises ApiError and UnreachableError.

    Args:
        api: the cluster.
        namespace: the namespace of the pod.
        pod: its manifest.
    """
    found = Findings()
    text = str(part(pod, "metadata", "annotations").get(ATTACHMENTS_ANNOTATION) or "")
    if not text:
        return found
    if not serves(api, API_VERSION, KIND):
        found.problems.append(
            f"network: the pods ask for the second network {text}, and this cluster has no Multus "
            f"(it knows no {KIND}), so they would never get it. Whoever runs the cluster can "
            "install Multus; or set network: pod-tcp and remove networkOptions"
        )
        return found
    for space, name in networks_of(text, namespace):
        seen = object_at(api, PATH.format(space, name))
        if seen == "unseen":
            found.unseen(f"whether the namespace {space} has the {KIND} {name}")
        elif seen is None:
            found.problems.append(_missing(api, space, name))
    return found


def _missing(api: Api, space: str, name: str) -> str:
    """The problem that a namespace lacks a network, and what to do about it.

    Before the first `pulumi up` of a platform its namespace is not there, and one that the user
    makes for the network would be refused.
    """
    asked = f"network: the pods ask for the second network {name}, and the namespace {space}"
    other = (
        "one of another namespace as NAMESPACE/NAME: `kubectl get network-attachment-definitions "
        "-A` shows all"
    )
    if object_at(api, f"{NAMESPACES}/{space}") is None:
        return f"{asked} does not exist yet, so no {KIND} can be in it. Name {other}"
    return (
        f"{asked} has no {KIND} of this name, so they would never start. Make it there, or name "
        f"{other}"
    )


def networks_of(text: str, namespace: str) -> Iterator[tuple[str, str]]:
    """Yield the namespace and the name of each network in the annotation for Multus.

    Args:
        text: the annotation: names separated by commas, or a list in JSON.
        namespace: the namespace of a network that is named without one.
    """
    if text.lstrip().startswith("["):
        try:
            items = cast(list[Json], json.loads(text))
        except ValueError:
            return  # The user's own annotation; Multus itself will refuse it.
        yield from ((str(i.get("namespace") or namespace), str(i.get("name"))) for i in items)
        return
    for one in text.split(","):
        space, _, name = one.strip().partition("@")[0].rpartition("/")
        yield space or namespace, name
