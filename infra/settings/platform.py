"""Reads the settings of a platform: machine, cluster, GPU Operator, storage, image and proxy."""

from dataclasses import dataclass

from infra.settings.airgap import BundleSettings
from infra.settings.cluster import (
    ClusterSettings,
    PodPolicyChoice,
    read_cluster,
    read_pod_policy,
)
from infra.settings.controllers import KUEUE, ControllerSettings, read_controllers
from infra.settings.devices import Devices, read_devices
from infra.settings.gpu import GpuOperatorSettings, read_gpu_operator
from infra.settings.gpu_regime import FIRST_SECRET_ENV_CHART, chart_version, shown
from infra.settings.image import ImageSettings, read_image
from infra.settings.kind_options import read_kind
from infra.settings.kinds import Chosen, Kinds
from infra.settings.limits import LimitSettings
from infra.settings.monitoring import (
    AlertWebhook,
    Monitoring,
    NumbersClaim,
    read_alert_webhook,
    read_monitoring,
    read_numbers_claim,
)
from infra.settings.namespace import NamespaceSettings, read_namespace
from infra.settings.needs import check_delivery, check_storage
from infra.settings.node import HostSettings, read_doctor, read_host
from infra.settings.nodes import NodeSettings, read_nodes
from infra.settings.nodes_watched import (
    NodeHealthChoice,
    read_node_health,
    read_replaces_lost_nodes,
)
from infra.settings.pods_demands import PodDemands
from infra.settings.program_image import PlatformDelivery
from infra.settings.proxy import ProxySettings, read_proxy
from infra.settings.queues import QueuesSettings, read_queues
from infra.settings.queues_topology import PlatformQueue
from infra.settings.reader import Reader
from infra.settings.storage import StorageSettings, read_storage


@dataclass(frozen=True)
class PlatformSettings:
    """Everything that a stack says about the platform that it owns.

    `delivery_for_runs` is what runs of other stacks need to know about the delivery.
    `shared_registry` is the registry whose images the nodes of this stack's k3s give each other;
    empty if they give each other none.
    """

    stack: str
    namespace_settings: NamespaceSettings
    devices: Devices
    host: HostSettings
    nodes: tuple[NodeSettings, ...]
    cluster: ClusterSettings
    gpu_operator: GpuOperatorSettings | None
    storage_kind: Chosen
    storage: StorageSettings
    delivery: Chosen
    delivery_for_runs: PlatformDelivery
    shared_registry: str
    image: ImageSettings
    proxy: ProxySettings
    limits: LimitSettings
    doctor: str
    bundle: BundleSettings | None
    pod_policy: PodPolicyChoice
    monitoring: Monitoring
    alert_webhook: AlertWebhook | None
    numbers_claim: NumbersClaim | None
    replaces_lost_nodes: bool
    controllers: tuple[ControllerSettings, ...]
    queues: QueuesSettings | None
    node_health: NodeHealthChoice
    demands: PodDemands

    @property
    def namespace(self) -> str:
        """Name of the namespace."""
        return self.namespace_settings.name

    @property
    def queue(self) -> PlatformQueue:
        """What runs need to know about the queue that the platform makes."""
        return (
            PlatformQueue(self.queues.name, self.queues.levels) if self.queues else PlatformQueue()
        )

    @property
    def brings_kueue(self) -> bool:
        """Whether Kueue is one of the controllers that the platform installs."""
        return any(controller.name == KUEUE for controller in self.controllers)

    @property
    def on_k3s(self) -> bool:
        """Whether the cluster is a k3s, which this stack has installed or adopted."""
        return self.cluster.kind == "k3s"

    def is_lost(self, node: NodeSettings) -> bool:
        """Whether a further machine is lost. If the first machine is lost, all are."""
        return node.host.gone or self.host.gone


def read_platform(
    reader: Reader,
    stack: str,
    kinds: Kinds,
    bundle: BundleSettings | None,
    limits: LimitSettings,
    demands: PodDemands,
) -> PlatformSettings | None:
    """Read every key of the platform; None if the image cannot be planned."""
    devices = read_devices(reader)
    host = read_host(reader)
    cluster = read_cluster(reader, host)
    nodes = read_nodes(reader, host, cluster)
    gpu_operator = read_gpu_operator(reader, cluster, devices)
    storage_kind = read_kind(reader, "storage", "storageOptions", kinds.storages)
    namespace, doctor = read_namespace(reader), read_doctor(reader)
    storage = read_storage(
        reader, storage_kind, kinds.storages[storage_kind.name], cluster, namespace
    )
    delivery = read_kind(reader, "imageDelivery", "imageDeliveryOptions", kinds.deliveries)
    image = read_image(reader, host, cluster, devices)
    check_storage(
        reader,
        storage_kind,
        kinds.storages[storage_kind.name],
        storage,
        cluster,
        namespace,
        nodes,
    )
    check_delivery(
        reader,
        delivery,
        kinds.deliveries[delivery.name],
        cluster,
        nodes,
        image.plan.repository if image else "",
        reader.raw("imageBuildOn"),
    )
    proxy = read_proxy(reader, cluster, nodes)
    _refuse_shown_password(reader, gpu_operator, proxy)
    pod_policy = read_pod_policy(reader, cluster)
    monitoring = read_monitoring(reader)
    alert_webhook = read_alert_webhook(reader, monitoring, proxy)
    numbers_claim = read_numbers_claim(reader, monitoring)
    replaces_lost_nodes = read_replaces_lost_nodes(reader, cluster, nodes)
    controllers = read_controllers(reader, kinds.controllers, namespace.name, bundle, monitoring)
    queues = read_queues(reader, cluster, devices, namespace.name)
    node_health = read_node_health(reader, cluster, devices, nodes)
    if image is None:
        return None
    shares = kinds.deliveries[delivery.name].embedded_registry
    shared = gpu_operator is not None and gpu_operator.sharing.shares
    machines = 1 + sum(not (host.gone or node.host.gone) for node in nodes)
    return PlatformSettings(
        stack=stack,
        namespace_settings=namespace,
        devices=Devices(devices.accelerator, devices.gpus, shared, machines),
        host=host,
        nodes=nodes,
        cluster=cluster,
        gpu_operator=gpu_operator,
        storage_kind=storage_kind,
        storage=storage,
        delivery=delivery,
        delivery_for_runs=_delivery_for_runs(reader, delivery, kinds),
        shared_registry=image.plan.host if shares else "",
        image=image,
        proxy=proxy,
        limits=limits,
        doctor=doctor,
        bundle=bundle,
        pod_policy=pod_policy,
        monitoring=monitoring,
        alert_webhook=alert_webhook,
        numbers_claim=numbers_claim,
        replaces_lost_nodes=replaces_lost_nodes,
        controllers=controllers,
        queues=queues,
        node_health=node_health,
        demands=demands,
    )


def _delivery_for_runs(reader: Reader, delivery: Chosen, kinds: Kinds) -> PlatformDelivery:
    names = kinds.deliveries[delivery.name].shared_options
    options = {name: getattr(delivery.options, name) for name in names if delivery.options}
    return PlatformDelivery(delivery.name, reader.text("imageRepository"), options)


def _refuse_shown_password(
    reader: Reader, operator: GpuOperatorSettings | None, proxy: ProxySettings
) -> None:
    """Refuse a proxy's password with an older chart and the operator's driver.

    The driver gets the proxy through the ClusterPolicy. Charts before FIRST_SECRET_ENV_CHART write
    the password into it in plain text.
    """
    chart = chart_version(operator.version) if operator else None
    if not (operator and operator.driver and chart and chart < FIRST_SECRET_ENV_CHART):
        return
    if any(url is not None and url.url_has_password for url in (proxy.http, proxy.https)):
        reader.problem(
            "gpuOperatorDriver",
            "true",
            f"the chart {operator.version} would show the proxy's password in the ClusterPolicy",
            "Set false, or a chart (gpuOperatorVersion) from "
            f"{shown(FIRST_SECRET_ENV_CHART)} on, or a proxy without a password",
        )
