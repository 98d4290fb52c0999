"""Makes a platform: machine, cluster, GPU Operator, image, namespace, storage and proxy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.controllers import CONTROLLERS
from infra.deliveries.kind import Pull
from infra.kube.namespaces.own_namespace import OwnNamespace
from infra.kube_command import Connection
from infra.node.runner import host_runner
from infra.objects import Manifest
from infra.platform.agents import make_agents, servers, start_looks
from infra.platform.cluster import Cluster, ClusterArgs
from infra.platform.controller_files import controller_objects
from infra.platform.controllers import Controller, ControllerArgs, as_job
from infra.platform.data_volume import DataVolume, DataVolumeArgs
from infra.platform.facts import ImageFacts, PlatformFacts, VolumeFacts
from infra.platform.gpu_operator import OWN_NAMESPACE as GPU_OPERATOR
from infra.platform.gpu_operator import GpuOperator
from infra.platform.gpu_operator_args import gpu_operator_args
from infra.platform.guards import TaskPods, TaskPodsArgs
from infra.platform.host import has_data_folder, prepare_host
from infra.platform.host_guard import check_adoption, check_way
from infra.platform.in_cluster import ProgramArgs
from infra.platform.k3s import start_look
from infra.platform.kubectl import make_kubectl
from infra.platform.lost_nodes import LostNodes
from infra.platform.monitoring import Monitoring, MonitoringArgs
from infra.platform.namespace import Namespace, NamespaceArgs, own_namespace
from infra.platform.namespace_guard import NamespaceGuard, NamespaceGuardArgs
from infra.platform.node_health import NodeHealth, NodeHealthArgs
from infra.platform.owner import Owner
from infra.platform.pod_policy import PodPolicy, PodPolicyArgs
from infra.platform.proxy import ProxyConfig, ProxyConfigArgs, ca_config_map_name, proxy_identity
from infra.platform.pull_secret import PullSecret, PullSecretArgs
from infra.platform.queues import Queues, QueuesArgs, queue_names, see_queues
from infra.platform.repair import repair_of_first
from infra.platform.same_machine import check_machine
from infra.platform.stack_name import shown_stack_name
from infra.platform.trainer_image import TrainerImage, trainer_image_args
from infra.platform.viewers import Viewers, ViewersArgs
from infra.settings import PlatformSettings
from infra.settings.controllers import KUEUE, PROMETHEUS
from infra.storages import STORAGES
from infra.storages.kind import Storage, StorageRequest


@dataclass(frozen=True)
class MadePlatform:
    """A platform of this stack.

    Args:
        facts: what runs have to know.
        connection: the cluster, for this stack.
        cluster: the component, for the options of what lies in the cluster.
        image: the component, for the outputs.
        ready: what a run waits for.
        queue: names of the platform's own queue; empty: it has none.
        controllers: those that it installs, as fields of a job.
        own_namespaces: those that go with it, but the controllers'.
    """

    facts: PlatformFacts
    connection: Connection
    cluster: Cluster
    image: TrainerImage
    ready: list[pulumi.Resource]
    queue: Mapping[str, str]
    controllers: Sequence[Mapping[str, Any]]
    own_namespaces: Sequence[OwnNamespace]


def make_storage(settings: PlatformSettings) -> Storage:
    """The storage that the settings choose; they have looked whether it can be."""
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
    """What runs have to know of the platform that these settings describe."""
    cluster, image, proxy = settings.cluster, settings.image, settings.proxy
    operator = settings.gpu_operator
    preinstalled = operator is not None and operator.regime == "preinstalled"
    return PlatformFacts(
        stack=shown_stack_name(settings.stack),
        accelerator=settings.devices.accelerator,
        gpus=settings.devices.gpus,
        gpus_are_shared=settings.devices.shared,
        machines=settings.devices.machines,
        namespace=settings.namespace,
        cluster_identifier=cluster_identifier,
        kubeconfig_is_path=cluster.kind == "existing",
        context=cluster.context,
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
        # k3s' own class for a toolkit of the host; otherwise runc itself adds the devices.
        runtime_class="nvidia" if preinstalled else "",
        is_gone=settings.host.gone and cluster.kind == "k3s",
        cluster_grows=cluster.grows,
        queue=settings.queue,
    )


async def make_platform(settings: PlatformSettings) -> MadePlatform:
    """Register everything that runs stand on.

    Raises:
        pulumi.RunError: the settings do not fit what is there.
    """
    storage, image_args = make_storage(settings), trainer_image_args(settings)
    objects = await controller_objects(settings)
    owner = Owner("owner")
    runner = host_runner(settings.host)
    kubectl = make_kubectl(settings.cluster, runner)
    look = start_look(settings.cluster, settings.host)
    looks = start_looks(settings)
    await check_adoption(settings.cluster, look, owner.identity)
    await check_way(settings.host, look, owner.identity)
    checked = check_machine(settings, storage, owner.identity)
    repair = await repair_of_first(settings.cluster, look)
    host = prepare_host(settings, storage, runner, owner.identity, checked, repair)
    cluster = Cluster(
        "cluster",
        ClusterArgs(
            stack=settings.stack,
            namespace=settings.namespace,
            cluster=settings.cluster,
            host=settings.host,
            limits=settings.limits,
            proxy=settings.proxy,
            bundle=settings.bundle,
            runner=runner,
            owner=owner.identity,
            look=look,
            shared_registry=settings.shared_registry,
            several_servers=bool(servers(settings)),
        ),
        pulumi.ResourceOptions(depends_on=[*host.made]),
    )
    queues_seen = await see_queues(settings, cluster.kubeconfig)
    facts = platform_facts(settings, storage, image_args.pull, cluster.identifier)
    connection = Connection(
        kubeconfig=cluster.kubeconfig,
        kubeconfig_is_path=facts.kubeconfig_is_path,
        context=facts.context,
        namespace=facts.namespace,
        stack=facts.stack,
        owner=owner.identity,
        is_gone=facts.is_gone,
        generation=cluster.generation,
    )
    agents = make_agents(
        settings, looks, owner.identity, cluster.generation, cluster.server, host.nfs
    )
    ready: list[pulumi.Resource] = [cluster, *agents]
    if settings.gpu_operator:
        operator = GpuOperator(
            "gpu-operator",
            gpu_operator_args(
                settings.gpu_operator, settings, kubectl, owner.identity, cluster.generation
            ),
            inside(cluster, cluster),
        )
        guard = NamespaceGuardArgs(connection, GPU_OPERATOR)
        guarded = NamespaceGuard("gpu-operator-namespace-guard", guard, inside(cluster, operator))
        ready += [operator, guarded]
    # What is lost with the claim stays in the cluster, and so does the namespace around it.
    keeps = storage.data_go_with_claim and not settings.storage.purge
    namespace_args = NamespaceArgs(
        connection, settings.stack, exists=settings.namespace_settings.exists, kept=keeps
    )
    namespace = Namespace("namespace", namespace_args, inside(cluster, cluster))
    # After the namespace: where that is refused, gigabytes are neither imported nor, by the next
    # `pulumi destroy`, taken from the platform whose namespace it is.
    there = pulumi.ResourceOptions(depends_on=[namespace, *agents])
    image = TrainerImage("image", image_args, there)
    volume = DataVolume(
        "data",
        DataVolumeArgs(
            storage,
            settings.stack,
            connection,
            namespace.uid,
            keeps_claim=keeps,
            purges=STORAGES[settings.storage_kind.name].purges if settings.storage.purge else "",
            has_data_folder=has_data_folder(settings, storage),
        ),
        inside(cluster, namespace, *host.made),
    )
    proxy = ProxyConfig(
        "proxy",
        ProxyConfigArgs(settings.proxy, settings.namespace, settings.stack, owner.identity),
        inside(cluster, namespace),
    )
    ready += [image, namespace, volume, proxy]
    if not settings.namespace_settings.exists:  # where it exists, others decide who sees it
        who = ViewersArgs(settings.namespace, settings.stack, owner.identity)
        ready.append(Viewers("viewers", who, inside(cluster, namespace)))
    if image_args.pull.docker_config:
        (secret,) = image_args.pull.secrets
        login = PullSecretArgs(
            secret,
            image_args.pull.docker_config,
            settings.namespace,
            settings.stack,
            owner.identity,
        )
        ready.append(PullSecret("image-pull", login, inside(cluster, namespace)))
    if settings.pod_policy != "none":
        policy = PodPolicyArgs(
            settings.namespace, settings.stack, owner.identity, settings.pod_policy
        )
        ready.append(PodPolicy("pod-policy", policy, inside(cluster, namespace)))
    controllers = make_controllers(settings, objects, connection, cluster)
    ready += controllers
    if settings.monitoring != "none":
        operator = settings.gpu_operator
        monitoring = MonitoringArgs(
            connection,
            settings.stack,
            is_brought=settings.monitoring == "install",
            exports_gpus=operator is not None and operator.dcgm_exporter,
            kueue_namespace=CONTROLLERS[KUEUE].namespace if settings.brings_kueue else "",
            alert_webhook=settings.alert_webhook,
            authorities=facts.ca_config_map,
        )
        after = inside(cluster, namespace, proxy, *controllers)
        ready.append(Monitoring("monitoring", monitoring, after))
    if settings.queues and queues_seen:
        gpus = settings.devices.gpus
        queues = QueuesArgs(settings.queues, queues_seen, gpus, connection, settings.stack)
        ready.append(Queues("queues", queues, inside(cluster, namespace, *controllers)))
    program_args = (
        settings.namespace,
        image_args.request.plan.reference,
        image_args.pull,
        settings.stack,
        owner.identity,
    )
    if settings.replaces_lost_nodes:
        # After the image and its login, without which the pod would not start.
        lost = ProgramArgs(*program_args)
        ready.append(LostNodes("lost-nodes", lost, inside(cluster, *ready)))
    # After what gives up the pods of a lost machine: `destroy` waits for all pods, and that helps.
    task_pods = TaskPodsArgs(connection, True, settings.replaces_lost_nodes)
    # With our own k3s they go, whether it answers or not.
    ready.append(TaskPods("task-pods", task_pods, inside(cluster, volume, *ready)))
    if settings.node_health != "off":
        operator = settings.gpu_operator
        health = NodeHealthArgs(
            *program_args,
            cordons=settings.node_health == "cordon",
            # With `nri` there is no such class: a plugin of containerd gives the devices.
            runtime_class="nvidia" if operator and operator.regime != "nri" else "",
            has_operator=operator is not None,
        )
        ready.append(NodeHealth("node-health", health, inside(cluster, *ready)))
    queue = queue_names(settings.queues, settings.namespace)
    jobs = [as_job(CONTROLLERS[each.name]) for each in settings.controllers]
    places = own_namespace(namespace_args)
    if settings.gpu_operator:
        places.append(GPU_OPERATOR)
    return MadePlatform(facts, connection, cluster, image, ready, queue, jobs, places)


def make_controllers(
    settings: PlatformSettings,
    objects: Mapping[str, Sequence[Manifest]],
    connection: Connection,
    cluster: Cluster,
) -> list[pulumi.Resource]:
    """The controllers, one after the other: a later one may know the kinds of an earlier one.

    Args:
        settings: of the platform.
        objects: of those that come by manifests, by their names.
        connection: the cluster.
        cluster: the component, for the options of what lies in the cluster.
    """
    made: list[pulumi.Resource] = []
    for each in settings.controllers:
        claim = settings.numbers_claim if each.name == PROMETHEUS else None
        listed = objects.get(each.name, ())
        args = ControllerArgs(each, connection, settings.stack, listed, claim)
        after = inside(cluster, cluster, *made[-1:])
        made.append(Controller(f"controller-{each.name}", args, after))
    return made


def inside(cluster: Cluster, *after: pulumi.Resource) -> pulumi.ResourceOptions:
    """Options for a component whose objects lie in the cluster."""
    return pulumi.ResourceOptions.merge(
        cluster.options, pulumi.ResourceOptions(depends_on=[*after])
    )
