"""A queue of Kueue for the runs of the platform (setting `queues`; docs/queues.md)."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.dependencies import dependencies
from infra.kube.api_server.access import Access
from infra.kube.errors import ApiError, TaskError, UnreachableError
from infra.kube.queues.kueue import GROUP, VERSIONS
from infra.kube.queues.queues_look import QueuesSeen, QueuesWanted, look_at_queues
from infra.kube_command import Connection, kube_command
from infra.labels import content_hash, metadata
from infra.names import GPU_RESOURCE
from infra.objects import Manifest, kubernetes_object
from infra.settings import PlatformSettings
from infra.settings.queues import QueuesSettings, cluster_queue_name

COMPONENT = "queues"
SECONDS = 5.0
"""For each answer of the cluster."""
EVERY_NODE = {"kubernetes.io/os": "linux"}
"""The label that each kubelet sets: Kueue asks for one in a flavor with a topology."""


@dataclass(frozen=True)
class QueuesArgs:
    """What is made.

    Args:
        settings: the setting `queues`.
        seen: what was found in the cluster.
        gpus: of the platform by its settings, for a cluster whose nodes do not offer them yet.
        connection: the cluster.
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
        """Name of the flavor, and of its topology if it has one."""
        return flavor_name(self.cluster_queue, self.settings.levels)


async def see_queues(
    settings: PlatformSettings, kubeconfig: pulumi.Output[str]
) -> QueuesSeen | None:
    """Ask the cluster what a queue in it can be; None where none is wanted.

    A preview goes on where the cluster is not there yet, or does not answer.

    Raises:
        pulumi.RunError: no queue can be made in it; names the reason and the way out.
    """
    queues = settings.queues
    if queues is None:
        return None
    known = await kubeconfig.future()
    cluster = settings.cluster
    try:
        if not known:
            raise UnreachableError("it is not there yet")
        is_path = cluster.kind == "existing"
        access = Access(
            kubeconfig="" if is_path else known,
            kubeconfig_path=known if is_path else "",
            context=cluster.context,
        )
        wanted = QueuesWanted(
            queues.name,
            queues.asked,
            queues.levels,
            cluster.grows,
            comes=settings.brings_kueue,
        )
        seen = await asyncio.to_thread(look_at_queues, access, SECONDS, wanted)
        for note in seen.notes:
            pulumi.log.warn(note)
        return seen
    except TaskError as reason:
        raise pulumi.RunError(str(reason)) from None
    except (ApiError, UnreachableError, OSError, ValueError) as reason:
        words = f"queues: the cluster was not asked whether Kueue is there: {reason}"
        if not pulumi.runtime.is_dry_run():
            raise pulumi.RunError(words) from None
        pulumi.log.warn(words)
        return QueuesSeen(was_asked=False)


def quota(args: QueuesArgs) -> dict[str, str]:
    """Amounts by resource: those given, else what the nodes offer.

    Raises:
        pulumi.RunError: a resource is neither given nor offered.
    """
    found = dict[str, str]()
    for resource in args.settings.resources:
        offered = args.seen.offered.get(resource, "")
        if resource == GPU_RESOURCE and not offered:
            offered = str(args.gpus)
        found[resource] = args.settings.quota.get(resource, offered)
        if not found[resource] and args.seen.was_asked:
            raise pulumi.RunError(
                f"queues.quota.{resource}: not set, and no node of the cluster offers any. Set the "
                "amount that runs may hold at one time"
            )
    return found


def flavor(args: QueuesArgs) -> Manifest:
    """All nodes are the same to this queue, or they are those of its topology."""
    about = _object(args, "ResourceFlavor", args.flavor)
    if not args.settings.levels:
        return {**about, "spec": {}}
    return {**about, "spec": {"nodeLabels": dict(EVERY_NODE), "topologyName": args.flavor}}


def topology(args: QueuesArgs) -> Manifest:
    """The places that Kueue knows."""
    levels = [{"nodeLabel": level} for level in args.settings.levels]
    return {**_object(args, "Topology", args.flavor), "spec": {"levels": levels}}


def cluster_queue(args: QueuesArgs) -> Manifest:
    """How much runs of the platform's namespace may hold, and that the more urgent goes first."""
    amounts = [
        {"name": name, "nominalQuota": amount or "0"} for name, amount in quota(args).items()
    ]
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
    """The LocalQueue, through which runs of the platform's namespace come into the ClusterQueue."""
    inside = args.connection.namespace
    about = _object(args, "LocalQueue", args.settings.name, inside)
    return {**about, "spec": {"clusterQueue": args.cluster_queue}}


def priority_class(args: QueuesArgs, name: str, value: int) -> Manifest:
    """A priority that a run's `queuePriority` can name, in every queue of the cluster."""
    about = _object(args, "WorkloadPriorityClass", name)
    return {**about, "value": value, "description": f"of platform {args.stack}"}


def _object(args: QueuesArgs, kind: str, name: str, namespace: str | None = None) -> Manifest:
    owner = args.connection.owner
    about: dict[str, Any] = metadata(name, namespace, COMPONENT, stack=args.stack, owner=owner)
    return {"apiVersion": f"{GROUP}/{args.seen.version}", "kind": kind, "metadata": about}


def queue_names(settings: QueuesSettings | None, namespace: str) -> Mapping[str, str]:
    """What the destroy guard has to know; empty where no queue is made."""
    if settings is None:
        return {}
    whole = cluster_queue_name(namespace, settings.name)
    names = {"queue": settings.name, "cluster_queue": whole}
    topology = {"topology": flavor_name(whole, settings.levels)} if settings.levels else {}
    return {**names, **topology}


def flavor_name(cluster_queue: str, levels: Sequence[str]) -> str:
    """Name of the ResourceFlavor, and of the Topology where there are levels.

    Kueue lets nobody change the levels of a Topology, or the Topology of a flavor. So other levels
    are objects of other names.
    """
    return f"{cluster_queue}-{content_hash(list(levels), 8)}" if levels else cluster_queue


class Queues(pulumi.ComponentResource):
    """Topology, ResourceFlavor, ClusterQueue, LocalQueue and WorkloadPriorityClasses.

    An object of one of these names that somebody else has made is refused before anything is made.
    The queue is only taken away when nothing stands in it.
    """

    queue_name: pulumi.Output[str]
    """Of the LocalQueue, once Kueue takes runs into it."""

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
            pulumi.ResourceOptions(parent=self, depends_on=dependencies(opts)),
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
        # The resource's name has the queue's in it: when the queue gets another name, this task is
        # also run to take the old queue away.
        kube_command(
            f"{name}-open-{settings.name}",
            "open-queue",
            connection,
            queue,
            pulumi.ResourceOptions(parent=self, depends_on=made),
        )
        self.queue_name = pulumi.Output.from_input(settings.name)
        self.register_outputs({"queueName": self.queue_name})

    def _make(
        self, name: str, manifest: Manifest, seen: QueuesSeen, after: pulumi.Resource
    ) -> pulumi.Resource:
        """Make the object; one of another version of Kueue's API is the same resource."""
        types = (f"kubernetes:{GROUP}/{version}:{manifest['kind']}" for version in VERSIONS)
        opts = pulumi.ResourceOptions(
            parent=self,
            depends_on=[after],
            aliases=[pulumi.Alias(type_=type_) for type_ in types],
            ignore_changes=None if seen.was_asked else ["apiVersion", "spec"],
        )
        return kubernetes_object(name, manifest, opts)
