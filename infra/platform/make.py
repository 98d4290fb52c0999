"""Makes a platform: its machine, cluster, GPU Operator, image, namespace, storage and proxy."""

from dataclasses import dataclass
from pathlib import Path

import pulumi

from infra.controllers import CONTROLLERS
from infra.deliveries.kind import Pull
from infra.kube_command import Connection
from infra.node.runner import host_runner
from infra.platform.cluster import Cluster, ClusterArgs
from infra.platform.controller_files import controller_objects
from infra.platform.controllers import as_job
from infra.platform.data_volume import DataVolume, DataVolumeArgs
from infra.platform.facts import ImageFacts, PlatformFacts, VolumeFacts
from infra.platform.fixed_names import fixed_names
from infra.platform.further_machines import (
    FurtherMachinesArgs,
    check_machines,
    make_further_machines,
    servers,
    start_looks,
)
from infra.platform.gpu_operator import OWN_NAMESPACE as GPU_OPERATOR
from infra.platform.guards import GuardArgs
from infra.platform.host import has_data_folder, prepare_host
from infra.platform.host_guard import check_adoption, check_way
from infra.platform.k3s import LookAtK3s
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
from infra.platform.proxy import ProxyConfig, ProxyConfigArgs, ca_config_map_name, proxy_identity
from infra.platform.queues import queue_names, see_queues
from infra.platform.repair import repair_of_first
from infra.platform.same_machine import make_same_machine_check
from infra.platform.stack_name import shown_stack_name
from infra.platform.trainer_image import TrainerImage, trainer_image_args
from infra.settings import PlatformSettings
from infra.settings.kubeconfig import api_server
from infra.storages import STORAGES
from infra.storages.kind import Storage, StorageRequest


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


def make_storage(settings: PlatformSettings) -> Storage:
    """Make the storage that the settings choose. Reading the settings has checked it already."""
    chosen = settings.storage_kind
    request = StorageRequest(
        namespace=settings.namespace,
        folder=str(settings.storage.data_root),
        size=settings.storage.size,
        options=chosen.options,
        address=settings.cluster.node_address,
    )
    return STORAGES[chosen.name].make(request)


def platform_facts(
    settings: PlatformSettings, storage: Storage, pull: Pull, cluster_identifier: str
) -> PlatformFacts:
    """Collect what runs have to know about the platform that these settings describe."""
    cluster, image, proxy = settings.cluster, settings.image, settings.proxy
    operator, is_existing = settings.gpu_operator, cluster.kind == "existing"
    preinstalled = operator is not None and operator.regime == "preinstalled"
    return PlatformFacts(
        stack=shown_stack_name(settings.stack),
        accelerator=settings.devices.accelerator,
        gpus=settings.devices.gpus,
        gpus_are_shared=settings.devices.shared,
        machines=settings.devices.machines,
        namespace=settings.namespace,
        cluster_identifier=cluster_identifier,
        kubeconfig_is_path=is_existing,
        context=cluster.context,
        api_server=api_server(Path(cluster.kubeconfig), cluster.context) if is_existing else "",
        volume=VolumeFacts(
            claim=storage.claim,
            access_mode=storage.access_mode,
            group_writes=storage.group_writes,
            identity=storage.identity,
            folder_on_host=storage.folder_on_host,
        ),
        image=ImageFacts(
            reference=image.plan.reference,
            pull_policy=pull.policy,
            pull_secrets=pull.secrets,
            repository=image.plan.repository,
            base=image.base,
            torch_index_url=image.torch_index_url,
            delivery=settings.delivery.name,
            delivery_options=dict(settings.delivery_for_runs.options),
        ),
        proxy=proxy_identity(proxy),
        ca_config_map=ca_config_map_name(proxy.ca_bundle) if proxy.ca_bundle else "",
        # k3s makes this class for a toolkit that is installed on the host. With the other regimes
        # pods use the default runtime.
        runtime_class="nvidia" if preinstalled else "",
        is_gone=settings.host.gone and cluster.kind == "k3s",
        cluster_grows=cluster.grows,
        queue=settings.queue,
    )


async def make_platform(
    settings: PlatformSettings, look: LookAtK3s | None, cluster_identifier: str
) -> MadePlatform:
    """Register all resources of the platform.

    Args:
        settings: the settings of the platform.
        look: the result of `start_look`.
        cluster_identifier: the result of `known_identifier`.

    Raises:
        pulumi.RunError: the settings do not fit the machines or the cluster as they are.
    """
    storage, image_args = make_storage(settings), trainer_image_args(settings)
    looks = start_looks(settings)
    objects = await controller_objects(settings)
    await check_machines(settings, looks)
    is_existing = settings.cluster.kind == "existing"
    queues_seen = await see_queues(settings, settings.cluster.kubeconfig) if is_existing else None
    owner = Owner("owner")
    runner = host_runner(settings.host)
    kubectl = make_kubectl(settings.cluster, runner)
    await check_adoption(settings.cluster, look, owner.identity)
    await check_way(settings.host, look, owner.identity)
    checked = make_same_machine_check(settings, storage, owner.identity)
    repair = await repair_of_first(settings.cluster, look)
    host = prepare_host(settings, storage, runner, owner.identity, checked, repair)
    cluster_args = ClusterArgs(
        stack=settings.stack,
        namespace=settings.namespace,
        cluster=settings.cluster,
        host=settings.host,
        limits=settings.limits,
        proxy=settings.proxy,
        bundle=settings.bundle,
        runner=runner,
        owner=owner.identity,
        identifier=cluster_identifier,
        look=look,
        shared_registry=settings.shared_registry,
        several_servers=bool(servers(settings)),
    )
    cluster = Cluster("cluster", cluster_args, pulumi.ResourceOptions(depends_on=[*host.made]))
    if not is_existing:  # Only now is there a kubeconfig.
        queues_seen = await see_queues(settings, await cluster.kubeconfig.future())
    facts = platform_facts(settings, storage, image_args.pull, cluster.identifier)
    base = Base(settings, _connection(facts, cluster, owner), cluster, owner.identity)
    machines_args = FurtherMachinesArgs(
        settings, looks, owner.identity, cluster.generation, cluster.server, host.nfs
    )
    machines = make_further_machines(machines_args)
    operator = make_gpu_operator(base, kubectl)
    # If deleting the claim would delete the data, the claim stays in the cluster after
    # `pulumi destroy`, and so does its namespace.
    keeps = storage.data_go_with_claim and not settings.storage.purge
    namespace_args = NamespaceArgs(
        base.connection,
        settings.stack,
        exists=settings.namespace_settings.exists,
        kept=keeps,
        fixed_names=fixed_names(settings, image_args.pull),
    )
    namespace = Namespace("namespace", namespace_args, base.inside(cluster))
    # The image comes after the namespace. If the namespace is refused, because another platform
    # owns it, this stack imports no gigabytes of image, and its next `pulumi destroy` does not
    # remove the image that the other platform uses.
    there = pulumi.ResourceOptions(depends_on=[namespace, *machines])
    image = TrainerImage("image", image_args, there)
    volume_args = DataVolumeArgs(
        storage,
        settings.stack,
        base.connection,
        namespace.uid,
        keeps_claim=keeps,
        purges=STORAGES[settings.storage_kind.name].purges if settings.storage.purge else "",
        has_data_folder=has_data_folder(settings, storage),
    )
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
    own_namespaces = own_namespace(namespace_args)
    if settings.gpu_operator:
        own_namespaces.append(GPU_OPERATOR)
    guard = GuardArgs(
        base.connection,
        k3s_is_ours=cluster.is_ours,
        queue=queue_names(settings.queues, settings.namespace),
        controllers=[as_job(CONTROLLERS[each.name]) for each in settings.controllers],
        own_namespaces=own_namespaces,
    )
    return MadePlatform(facts, base.connection, cluster, image, ready, guard)


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
