"""Makes a platform: its machine, cluster, GPU Operator, image, namespace, storage and proxy."""

from dataclasses import dataclass

import pulumi

from infra.controllers import CONTROLLERS
from infra.deliveries.kind import Pull
from infra.kube_command import Connection
from infra.node.runner import Runner, host_runner
from infra.platform.cluster import Cluster
from infra.platform.cluster_args import ClusterArgs
from infra.platform.collected_facts import make_storage, platform_facts
from infra.platform.controller_files import controller_objects
from infra.platform.controllers import controller_field
from infra.platform.data_volume import DataVolume, DataVolumeArgs
from infra.platform.facts import PlatformFacts
from infra.platform.fixed_names import fixed_names
from infra.platform.further_machines import (
    FurtherMachinesArgs,
    check_machines,
    make_further_machines,
    servers,
    start_observing_machines,
)
from infra.platform.gpu_operator import OWN_NAMESPACE as GPU_OPERATOR
from infra.platform.guards import GuardArgs
from infra.platform.host import PreparedHost, has_data_folder, prepare_host
from infra.platform.host_guard import check_adoption, check_host_setting
from infra.platform.k3s_state import FutureObservation
from infra.platform.kubectl import make_kubectl
from infra.platform.namespace import Namespace, NamespaceArgs, own_namespace
from infra.platform.optional_parts import (
    Base,
    make_controllers,
    make_gpu_operator,
    make_monitoring,
    make_namespace_parts,
    make_programs,
    make_queues,
)
from infra.platform.owner import Owner
from infra.platform.proxy import ProxyConfig, ProxyConfigArgs
from infra.platform.queues import queue_names, see_queues, see_queues_of_k3s
from infra.platform.repair import repair_of_first
from infra.platform.same_machine import make_same_machine_check
from infra.platform.trainer_image import TrainerImage, trainer_image_args
from infra.settings import PlatformSettings
from infra.storages import STORAGES
from infra.storages.kind import Storage


@dataclass(frozen=True)
class MadePlatform:
    """The platform that this stack owns.

    Args:
        facts: what runs have to know about the platform.
        connection: how this stack's programs reach the cluster.
        cluster: the component of the cluster, whose `options` every object in the cluster gets.
        image: the component of the trainer image, for the stack's outputs.
        ready: the resources that a run waits for.
        guard: what DestroyGuard checks. `__main__.py` registers it after the run.
    """

    facts: PlatformFacts
    connection: Connection
    cluster: Cluster
    image: TrainerImage
    ready: list[pulumi.Resource]
    guard: GuardArgs


async def make_platform(
    settings: PlatformSettings, observation: FutureObservation | None, cluster_identifier: str
) -> MadePlatform:
    """Register all resources of the platform.

    Args:
        settings: the settings of the platform.
        observation: the result of `start_observing_k3s`.
        cluster_identifier: the result of `known_identifier`.

    Raises:
        pulumi.RunError: the settings do not fit the machines or the cluster as they are.
    """
    storage, image_args = make_storage(settings), trainer_image_args(settings)
    observations = start_observing_machines(settings)
    objects = await controller_objects(settings)
    await check_machines(settings, observations)
    is_existing = settings.cluster.kind == "existing"
    queues_seen = await see_queues(settings, settings.cluster.kubeconfig) if is_existing else None
    owner = Owner("owner")
    host, cluster = await _make_cluster(settings, storage, owner, cluster_identifier, observation)
    facts = platform_facts(settings, storage, image_args.pull, cluster.identifier)
    base = Base(settings, _connection(facts, cluster, owner), cluster)
    machines_args = FurtherMachinesArgs(
        settings, observations, owner.identity, cluster.generation, cluster.server, host.nfs
    )
    machines = make_further_machines(machines_args)
    operator = make_gpu_operator(base, make_kubectl(settings.cluster, host_runner(settings.host)))
    if not is_existing:
        joined = [machine.joined for machine in machines]
        queues_seen = await see_queues_of_k3s(settings, cluster.kubeconfig, joined)
    namespace_args = _namespace_args(base, storage, image_args.pull)
    namespace = Namespace("namespace", namespace_args, base.inside(cluster))
    # The image comes after the namespace. If the namespace is refused, because another platform
    # owns it, this stack imports no gigabytes of image, and its next `pulumi destroy` does not
    # remove the image that the other platform uses.
    after_namespace = pulumi.ResourceOptions(depends_on=[namespace, *machines])
    to_nodes = trainer_image_args(settings, cluster.kubeconfig)
    image = TrainerImage("image", to_nodes, after_namespace)
    volume_args = _volume_args(base, storage, namespace)
    volume = DataVolume("data", volume_args, base.inside(namespace, *host.made))
    proxy_args = ProxyConfigArgs(settings.proxy, settings.namespace, settings.stack, owner.identity)
    proxy = ProxyConfig("proxy", proxy_args, base.inside(namespace))
    ready: list[pulumi.Resource] = [
        *(cluster, *machines, *operator, image, namespace, volume, proxy),
        *make_namespace_parts(base, namespace, image, image_args.pull),
    ]
    controllers = make_controllers(base, objects, operator)
    ready += controllers
    ready += make_monitoring(base, facts.ca_config_map, [namespace, proxy, *controllers])
    ready += make_queues(base, queues_seen, [namespace, *controllers])
    ready += make_programs(base, image_args, volume, ready)
    guard = _guard_args(base, namespace_args)
    return MadePlatform(facts, base.connection, cluster, image, ready, guard)


async def _make_cluster(
    settings: PlatformSettings,
    storage: Storage,
    owner: Owner,
    identifier: str,
    observation: FutureObservation | None,
) -> tuple[PreparedHost, Cluster]:
    """Check the first machine, and register what prepares it and the cluster."""
    runner = host_runner(settings.host)
    await check_adoption(settings.cluster, observation, owner.identity)
    await check_host_setting(settings.host, observation, owner.identity)
    checked = make_same_machine_check(settings, storage, owner.identity)
    repair = await repair_of_first(settings.cluster, observation)
    host = prepare_host(settings, storage, runner, owner.identity, checked, repair)
    args = _cluster_args(settings, runner, owner, identifier, observation)
    return host, Cluster("cluster", args, pulumi.ResourceOptions(depends_on=[*host.made]))


def _connection(facts: PlatformFacts, cluster: Cluster, owner: Owner) -> Connection:
    return Connection(
        kubeconfig=cluster.kubeconfig,
        kubeconfig_is_path=facts.kubeconfig_is_path,
        context=facts.context,
        namespace=facts.namespace,
        stack=facts.stack,
        owner=owner.identity,
        is_gone=facts.is_gone,
        generation=cluster.generation,
    )


def _cluster_args(
    settings: PlatformSettings,
    runner: Runner,
    owner: Owner,
    identifier: str,
    observation: FutureObservation | None,
) -> ClusterArgs:
    return ClusterArgs(
        stack=settings.stack,
        namespace=settings.namespace,
        cluster=settings.cluster,
        host=settings.host,
        limits=settings.limits,
        proxy=settings.proxy,
        bundle=settings.bundle,
        runner=runner,
        owner=owner.identity,
        identifier=identifier,
        observation=observation,
        shared_registry=settings.shared_registry,
        several_servers=bool(servers(settings)),
    )


def _keeps_claim(settings: PlatformSettings, storage: Storage) -> bool:
    """Whether the claim stays in the cluster after `pulumi destroy`, and so does its namespace.

    It stays if deleting the claim would delete the data.
    """
    return storage.data_go_with_claim and not settings.storage.purge


def _namespace_args(base: Base, storage: Storage, pull: Pull) -> NamespaceArgs:
    settings = base.settings
    return NamespaceArgs(
        base.connection,
        settings.stack,
        exists=settings.namespace_settings.exists,
        kept=_keeps_claim(settings, storage),
        fixed_names=fixed_names(settings, pull),
    )


def _volume_args(base: Base, storage: Storage, namespace: Namespace) -> DataVolumeArgs:
    settings = base.settings
    return DataVolumeArgs(
        storage,
        settings.stack,
        base.connection,
        namespace.uid,
        keeps_claim=_keeps_claim(settings, storage),
        purges=STORAGES[settings.storage_kind.name].purges if settings.storage.purge else "",
        has_data_folder=has_data_folder(settings, storage),
    )


def _guard_args(base: Base, namespace: NamespaceArgs) -> GuardArgs:
    settings = base.settings
    own_namespaces = own_namespace(namespace)
    if settings.gpu_operator:
        own_namespaces.append(GPU_OPERATOR)
    return GuardArgs(
        base.connection,
        k3s_is_ours=base.cluster.is_ours,
        queue=queue_names(settings.queues, settings.namespace),
        controllers=[controller_field(CONTROLLERS[each.name]) for each in settings.controllers],
        own_namespaces=own_namespaces,
    )
