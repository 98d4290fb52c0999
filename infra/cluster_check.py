"""Asks an existing cluster whether a stack can come up on it. It changes nothing there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings
from infra.kube.api_server.read_only import read_only_api
from infra.kube.api_server.rights import Need, as_roles, missing_rights
from infra.kube.controllers.controller import Controller
from infra.kube.controllers.controllers_findings import controllers_findings
from infra.kube.controllers.served import not_usable, serves
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.namespaces.claim_names import names_findings
from infra.kube.namespaces.claim_namespace import namespace_findings
from infra.kube.pods.room import nodes_with_room, pod_needs
from infra.kube.runs.dataset_findings import DatasetUse, dataset_findings
from infra.kube.runs.pods_findings import RunPods, pods_findings
from infra.kube.runs.rights_on_runs import needs_for_runs
from infra.kube.volumes.storage_findings import StorageNeeds, storage_findings
from infra.platform.pod_policy import API_VERSION as RULES_VERSION
from infra.platform.pod_policy import KIND as RULES_KIND
from infra.platform.stack_name import shown_stack_name
from infra.rights import ADMINISTRATOR

SECONDS = 5.0
"""The time limit for each answer of the cluster."""


@dataclass(frozen=True)
class Installed:
    """What the platform of a stack puts on the cluster.

    Args:
        stack: the name of the stack.
        owner: the owner id of the stack; empty before its first `up`.
        makes_namespace: whether the platform makes its namespace.
        names: the API server's paths of objects of the platform with names that objects of others
            may have too.
        controllers: the controllers that the stack installs.
        numbers: the volume that Prometheus needs for its metrics; None if it needs none.
        pod_policy: the setting `podPolicy`.
    """

    stack: str = ""
    owner: str = ""
    makes_namespace: bool = False
    names: Sequence[str] = ()
    controllers: Sequence[Controller] = ()
    numbers: StorageNeeds | None = None
    pod_policy: str = "none"


NOTHING_INSTALLED = Installed()


def ask(
    access: Access,
    volume: StorageNeeds,
    needs: Iterable[Need],
    pods: RunPods | None = None,
    installed: Installed = NOTHING_INSTALLED,
    dataset: DatasetUse | None = None,
) -> Findings:
    """Return all findings.

    If a request fails, the remaining questions are not asked, and a note says why.
    """
    found = Findings()
    try:
        with read_only_api(access, SECONDS) as api:
            namespace, owner = volume.namespace, installed.owner
            if pods:
                each = pod_needs(pods.pod["spec"], pods.pods, without=pods.without)
                volume = replace(volume, holding=partial(nodes_with_room, each))
                if pods.has_dataset:
                    small = replace(each, requests={})
                    volume = replace(volume, reached=partial(nodes_with_room, small))
            found.add(storage_findings(api, volume))
            if pods:
                needs = [*needs, *needs_for_runs(api, namespace)]
            if missing := missing_rights(api, needs, namespace):
                found.problems.append(rights_problem(missing, namespace))
            if dataset:
                found.add(dataset_findings(api, dataset))
            if pods:
                pods_findings(api, pods, found)
            if installed.makes_namespace:
                shown = shown_stack_name(installed.stack)
                found.add(namespace_findings(api, namespace, owner, shown))
            found.add(names_findings(api, namespace, installed.names, owner))
            found.add(controllers_findings(api, installed.controllers, installed.stack))
            found.problems += _pod_policy_problems(api, installed.pod_policy)
            if installed.numbers:
                found.add(storage_findings(api, installed.numbers))
    except (ApiError, UnreachableError, OSError, ValueError) as reason:
        found.notes.append(f"the cluster was not asked everything beforehand: {reason}")
    return found


def _pod_policy_problems(api: Api, setting: str) -> list[str]:
    """Why the policy of the setting `podPolicy` cannot be made; empty if it can, or is not asked.

    The preview of the object itself would not say so.
    """
    if setting == "none" or serves(api, RULES_VERSION, RULES_KIND):
        return []
    why = (
        f"the cluster serves no {RULES_KIND} of {RULES_VERSION}, which Kubernetes has from 1.30 "
        "on. Set podPolicy to none, or use a newer cluster"
    )
    return [not_usable(f"podPolicy: {setting!r}", why)]


def rights_problem(missing: list[Need], namespace: str) -> str:
    """The message about missing rights, with roles that an administrator can apply."""
    if ADMINISTRATOR in missing:
        return (
            "kubeconfig: its user is no administrator of the cluster, as the charts of the GPU "
            "Operator and of controllers need. Set gpuOperator: false where the cluster has its "
            "GPUs already, remove controllers that it has, or use an administrator's kubeconfig"
        )
    beyond = any(not need.namespace for need in missing)
    hint = (
        " Without rights on the whole cluster: namespaceExisting: use, and storage: storage-class "
        "or existing-claim."
        if beyond
        else ""
    )
    return (
        f"kubeconfig: its user may not do all that this stack needs.{hint} An administrator can "
        f"apply these roles and bind them to the user:\n{as_roles(missing, f'{namespace}-trains')}"
    )
