"""Finds out whether the settings lead to the cluster in which the stack's objects are.

For the engine, another identifier means another cluster. It would first make all objects there. If
it is the same cluster at another address, that changes nothing. Then the engine would delete the
former objects by their names, such as the namespace with everything in it. So the same cluster
keeps its identifier, and another cluster is refused before anything is registered. A stack that got
another name by `pulumi stack rename` keeps the identifier too, with its former name in it.
"""

import asyncio
from hashlib import sha256

import pulumi
import yaml

from infra.kube.api_server.access import Access
from infra.kube.api_server.read_only import read_only_api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.our_cluster import whose_cluster
from infra.platform.cluster import cluster_identifier, way_to_cluster
from infra.platform.former_cluster import FormerCluster, former_cluster
from infra.platform.k3s_state import FutureObservation
from infra.platform.stack_state import StackState
from infra.settings import ClusterSettings, HostSettings, PlatformSettings

SECONDS = 5.0
"""How long each answer of the cluster may take."""


async def known_identifier(
    settings: PlatformSettings, observation: FutureObservation | None, state: StackState
) -> str:
    """Find the identifier that names the cluster to the Kubernetes provider.

    A k3s that this stack has installed is not asked, because it may move to another host
    (ClusterGeneration).

    Args:
        settings: the settings of the platform.
        observation: what the host has said about its k3s; None: there is none, or it was not asked.
        state: the state of this stack.

    Raises:
        pulumi.RunError: the settings lead to another cluster, or it cannot be found out whether
            they do.
    """
    cluster, host = settings.cluster, settings.host
    now = cluster_identifier(settings.stack, cluster, host)
    former = former_cluster(await state.resources())
    if former is None:
        return now
    if _led_there(former, way_to_cluster(cluster, host)):
        return former.identifier
    if cluster.installs_k3s:
        return now
    if cluster.kind == "existing":
        is_same = await _is_same_cluster(settings, former)
    else:
        is_same = await _is_same_k3s(host, observation, former)
    if is_same:
        pulumi.log.info("the settings lead to the former cluster in another way")
    return former.identifier if is_same else now


def _led_there(former: FormerCluster, way: str) -> bool:
    """Whether the last `up` led to the same cluster, perhaps under another name of the stack.

    Only an address of an existing cluster has `://` in it. So the context of such a cluster cannot
    be taken for a k3s.
    """
    was_address, is_address = "://" in former.leads_to, "://" in way
    return was_address == is_address and former.leads_to.endswith(f"-{way}")


async def _is_same_cluster(settings: PlatformSettings, former: FormerCluster) -> bool:
    cluster = settings.cluster
    access = Access(kubeconfig_path=cluster.kubeconfig, context=cluster.context)
    reason = ""
    try:
        answer = await asyncio.to_thread(_ask, access, former)
    except (ApiError, UnreachableError, OSError, ValueError) as problem:
        answer, reason = "unseen", str(problem)
    if answer == "ours" or not former.uids:
        return answer == "ours"
    if former.is_existing and answer == "another":
        raise pulumi.RunError(another_cluster(cluster, former))
    if former.is_existing or reason:
        raise pulumi.RunError(unseen_cluster(cluster, former, reason))
    return False  # The stack moves from a k3s to this cluster; its objects in the k3s are deleted.


def _ask(access: Access, former: FormerCluster) -> str:
    with read_only_api(access, SECONDS) as api:
        return whose_cluster(api, former.uids)


async def _is_same_k3s(
    host: HostSettings, observation: FutureObservation | None, former: FormerCluster
) -> bool:
    """Whether the adopted k3s has the certificate authority that the former kubeconfig trusts."""
    found = await asyncio.wrap_future(observation) if observation else None
    if found is None or found.problem:
        reason = found.problem if found else "it is lost (hostGone)"
        raise pulumi.RunError(
            f"{'sshHost' if host.ssh else 'host'}: {host.address!r} cannot be used: it could not "
            f"be asked about its k3s ({reason}), so it is not known whether that is the k3s in "
            "which this stack's objects are. Nothing was changed. Run the command again when it "
            "answers"
        )
    return bool(found.authority) and found.authority == authority_of(former.kubeconfig)


def authority_of(kubeconfig: str) -> str:
    """The checksum of the certificate authority in a kubeconfig's text, as k3s-look.sh prints it.

    It is empty if the kubeconfig names no authority. This function is pure.
    """
    try:
        content = yaml.safe_load(kubeconfig)
        text = str(content["clusters"][0]["cluster"]["certificate-authority-data"])
    except (yaml.YAMLError, LookupError, TypeError):
        return ""
    return sha256(f"{text}\n".encode()).hexdigest()


def another_cluster(cluster: ClusterSettings, former: FormerCluster) -> str:
    """Tell people why a cluster cannot be used, and what to do."""
    return (
        f"{_named(cluster)} cannot be used: this leads to another cluster than the one in which "
        "this stack's objects are, and not one of them is there. Nothing was changed.\n"
        "To go on with the former cluster, set it back:\n"
        f"{_set_back(former)}"
        "To move this stack to the other cluster: set it back all the same, run `pulumi destroy`, "
        "set the other cluster, and run `pulumi up`.\n"
        f"{_GONE}"
    )


def unseen_cluster(cluster: ClusterSettings, former: FormerCluster, reason: str) -> str:
    """Tell people why it is not known whether a cluster can be used, and what to do."""
    why = reason or "these credentials may look at none of this stack's objects"
    return (
        f"{_named(cluster)} cannot be used: this leads to another address than before, and it is "
        "not known whether the cluster is the one in which this stack's objects are "
        f"({why}). Nothing was changed.\n"
        "Run the command again when the cluster answers, or set it back:\n"
        f"{_set_back(former)}"
        f"{_GONE}"
    )


_GONE = (
    "If the former cluster is gone for good, let the stack forget it first: docs/clusters.md "
    "(Another address or another cluster)"
)


def _named(cluster: ClusterSettings) -> str:
    context = repr(cluster.named_context)
    if not cluster.named_context:
        context += f" (the current one of the file, {cluster.context})"
    return f"kubeconfig: {cluster.kubeconfig!r} with kubeContext: {context}"


def _set_back(former: FormerCluster) -> str:
    """The commands that set the former cluster again, one on each line."""
    if not former.is_existing:
        return "  pulumi config set cluster k3s\n"
    context = former.context or "NAME    # it was empty: the current one of the file"
    return (
        f"  pulumi config set kubeconfig {former.kubeconfig}\n"
        f"  pulumi config set kubeContext {context}\n"
    )
