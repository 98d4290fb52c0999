"""The queue of Kueue that the setting `queues` makes for the platform's runs (docs/queues.md)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.dependencies import child_options
from infra.kube.api_server.access import Access
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.quantity import amount
from infra.kube.queues.kueue import GROUP, VERSIONS
from infra.kube.queues.platform_queues_seen import QueuesSeen, QueuesWanted, read_queues
from infra.kube_command import Connection, kube_command
from infra.labels import content_hash, metadata
from infra.names import GPU_RESOURCE
from infra.objects import Manifest, kubernetes_object
from infra.settings import PlatformSettings
from infra.settings.queues import QueuesSettings, cluster_queue_name

COMPONENT = "queues"
SECONDS = 5.0
"""How long each answer of the cluster may take."""
EVERY_NODE = {"kubernetes.io/os": "linux"}
"""A label that each kubelet sets. Kueue requires a node label in a flavor with a topology."""


@dataclass(frozen=True)
class QueuesArgs:
    """What the queue is made from.

    Args:
        settings: the setting `queues`.
        seen: what was found in the cluster.
        gpus: number of GPUs of the platform by its settings. It counts if the nodes of the cluster
            do not offer GPUs yet.
        connection: how the cluster is reached.
        stack: name of the stack.
    """

    settings: QueuesSettings
    seen: QueuesSeen
    gpus: int
    connection: Connection
    stack: str

    @property
    def cluster_queue(self) -> str:
        """Name of the ClusterQueue."""
        return cluster_queue_name(self.connection.namespace, self.settings.name)

    @property
    def flavor(self) -> str:
        """Name of the ResourceFlavor, and of its Topology if it has one."""
        return flavor_name(self.cluster_queue, self.settings.levels)


async def see_queues_of_k3s(
    settings: PlatformSettings,
    kubeconfig: pulumi.Output[str],
    joined: Sequence[pulumi.Output[str]],
) -> QueuesSeen | None:
    """Ask a k3s of this stack as soon as it has all nodes, which the quota counts.

    Args:
        settings: the settings of the platform.
        kubeconfig: the content of the kubeconfig.
        joined: an output of each further machine, which is there when the machine has joined.

    Returns:
        The result of `see_queues`, which also says what it raises.
    """
    content = await kubeconfig.future()
    if settings.queues and not settings.host.gone:
        for machine in joined:
            await machine.future()
    return await see_queues(settings, content)


async def see_queues(settings: PlatformSettings, kubeconfig: str | None) -> QueuesSeen | None:
    """Ask the cluster about Kueue and about the resources that its nodes offer.

    A preview goes on if the cluster is not there yet, or does not answer. A k3s whose machine is
    lost is not asked, and its queue stays in the state as it is.

    Args:
        settings: the settings of the platform.
        kubeconfig: the path of the kubeconfig of an existing cluster, or the content of that of a
            k3s; None or empty: the k3s is not there yet.

    Returns:
        None if the settings ask for no queue.

    Raises:
        pulumi.RunError: no queue can be made in the cluster. The text says why, and what to do.
    """
    queues = settings.queues
    if queues is None:
        return None
    cluster = settings.cluster
    if settings.on_k3s and settings.host.gone:
        return QueuesSeen(was_asked=False)
    try:
        if not kubeconfig:
            raise UnreachableError("it is not there yet")
        is_path = cluster.kind == "existing"
        access = Access(
            kubeconfig="" if is_path else kubeconfig,
            kubeconfig_path=kubeconfig if is_path else "",
            context=cluster.context,
        )
        wanted = QueuesWanted(
            queues.name,
            queues.asked,
            queues.levels,
            cluster.grows,
            comes=settings.brings_kueue,
            machines=[node.name for node in settings.nodes if not node.host.gone],
        )
        seen = await asyncio.to_thread(read_queues, access, SECONDS, wanted)
        for note in seen.notes:
            pulumi.log.warn(note)
        quota(queues, seen, settings.devices.gpus)  # refuses before the queue's objects are made
        return seen
    except TaskError as reason:
        raise pulumi.RunError(str(reason)) from None
    except (ApiError, UnreachableError, OSError, ValueError) as reason:
        words = f"queues: the cluster was not asked whether Kueue is there: {reason}"
        if not pulumi.runtime.is_dry_run():
            raise pulumi.RunError(words) from None
        pulumi.log.warn(words)
        return QueuesSeen(was_asked=False)


def quota(queues: QueuesSettings, seen: QueuesSeen, gpus: int) -> dict[str, str]:
    """The amount of each resource: the one in the settings, or else what the nodes offer.

    Where GPUs are still to come, it is at least their number in the settings. The arguments are the
    fields of `QueuesArgs`.

    Raises:
        pulumi.RunError: the settings name no amount of a resource, and no node offers it.
    """
    found = dict[str, str]()
    for resource in queues.resources:
        offered = seen.offered.get(resource, "")
        if resource == GPU_RESOURCE:
            come = not offered or (seen.gpus_come and amount(offered) < gpus)
            offered = str(gpus) if come else offered
        found[resource] = queues.quota.get(resource, offered)
        if not found[resource] and seen.was_asked:
            raise pulumi.RunError(
                f"queues.quota.{resource}: not set, and no node of the cluster offers any. Set the "
                "amount that runs may hold at one time"
            )
    return found


def flavor(args: QueuesArgs) -> Manifest:
    """The ResourceFlavor. Without a topology it covers all nodes alike."""
    about = _object(args, "ResourceFlavor", args.flavor)
    if not args.settings.levels:
        return {**about, "spec": {}}
    return {**about, "spec": {"nodeLabels": dict(EVERY_NODE), "topologyName": args.flavor}}


def topology(args: QueuesArgs) -> Manifest:
    """The Topology: the node labels that tell Kueue how near two nodes are to each other."""
    levels = [{"nodeLabel": level} for level in args.settings.levels]
    return {**_object(args, "Topology", args.flavor), "spec": {"levels": levels}}


def cluster_queue(args: QueuesArgs) -> Manifest:
    """The ClusterQueue, which says how much the runs of the platform's namespace may hold.

    A run with a higher priority may take the place of runs with a lower one.
    """
    found = quota(args.settings, args.seen, args.gpus)
    amounts = [{"name": name, "nominalQuota": amount or "0"} for name, amount in found.items()]
    namespace = {"kubernetes.io/metadata.name": args.connection.namespace}
    return {
        **_object(args, "ClusterQueue", args.cluster_queue),
        "spec": {
            "namespaceSelector": {"matchLabels": namespace},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [
                {
                    "coveredResources": [each["name"] for each in amounts],
                    "flavors": [{"name": args.flavor, "resources": amounts}],
                }
            ],
        },
    }


def local_queue(args: QueuesArgs) -> Manifest:
    """The LocalQueue, through which runs of the platform's namespace enter the ClusterQueue."""
    inside = args.connection.namespace
    about = _object(args, "LocalQueue", args.settings.name, inside)
    return {**about, "spec": {"clusterQueue": args.cluster_queue}}


def priority_class(args: QueuesArgs, name: str, value: int) -> Manifest:
    """A priority that a run's setting `queuePriority` can name, in every queue of the cluster."""
    about = _object(args, "WorkloadPriorityClass", name)
    return {**about, "value": value, "description": f"of platform {args.stack}"}


def _object(args: QueuesArgs, kind: str, name: str, namespace: str | None = None) -> Manifest:
    owner = args.connection.owner
    about: dict[str, Any] = metadata(name, namespace, COMPONENT, stack=args.stack, owner=owner)
    return {"apiVersion": f"{GROUP}/{args.seen.version}", "kind": kind, "metadata": about}


def queue_names(settings: QueuesSettings | None, namespace: str) -> Mapping[str, str]:
    """The names that DestroyGuard has to know; empty if no queue is made."""
    if settings is None:
        return {}
    whole = cluster_queue_name(namespace, settings.name)
    names = {"queue": settings.name, "cluster_queue": whole}
    topology = {"topology": flavor_name(whole, settings.levels)} if settings.levels else {}
    return {**names, **topology}


def flavor_name(cluster_queue: str, levels: Sequence[str]) -> str:
    """Name of the ResourceFlavor, and of the Topology if there are levels.

    Kueue does not allow to change the levels of a Topology, or the Topology of a flavor. So the
    name contains a hash of the levels, and other levels are other objects.
    """
    return f"{cluster_queue}-{content_hash(list(levels), 8)}" if levels else cluster_queue


class Queues(pulumi.ComponentResource):
    """Topology, ResourceFlavor, ClusterQueue, LocalQueue and WorkloadPriorityClasses.

    If somebody else has made an object with one of these names, it is refused before anything is
    made. The queue is only removed when there is no work in it.
    """

    def __init__(
        self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:Queues", name, {}, opts)
        connection, settings = args.connection, args.settings
        queue = dict(queue_names(settings, connection.namespace))
        claim = kube_command(
            f"{name}-claim",
            "claim-queues",
            connection,
            {**queue, "priorities": list(settings.priorities)},
            child_options(self, opts),
        )
        made: list[pulumi.Resource] = [claim]
        for role, manifest in (
            *([("topology", topology(args))] if settings.levels else []),
            ("flavor", flavor(args)),
            ("cluster-queue", cluster_queue(args)),
            ("local-queue", local_queue(args)),
        ):
            made.append(self._make(f"{name}-{role}", manifest, args.seen, made[-1]))
        for class_name, value in settings.priorities.items():
            manifest = priority_class(args, class_name, value)
            made.append(self._make(f"{name}-priority-{class_name}", manifest, args.seen, claim))
        # The name of this resource contains the name of the queue. So if the queue gets another
        # name, the `delete` of this task also runs for the old queue.
        kube_command(
            f"{name}-open-{settings.name}",
            "open-queue",
            connection,
            queue,
            pulumi.ResourceOptions(parent=self, depends_on=made),
        )
        self.register_outputs({})

    def _make(
        self, name: str, manifest: Manifest, seen: QueuesSeen, after: pulumi.Resource
    ) -> pulumi.Resource:
        """Make the object. In another version of Kueue's API it is still the same resource."""
        types = (f"kubernetes:{GROUP}/{version}:{manifest['kind']}" for version in VERSIONS)
        opts = pulumi.ResourceOptions(
            parent=self,
            depends_on=[after],
            aliases=[pulumi.Alias(type_=type_) for type_ in types],
            ignore_changes=None if seen.was_asked else ["apiVersion", "spec"],
        )
        return kubernetes_object(name, manifest, opts)
