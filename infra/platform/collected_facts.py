"""Collects from the settings of a platform what runs have to know about it."""

from pathlib import Path

from infra.deliveries.kind import Pull
from infra.platform.facts import ImageFacts, PlatformFacts, VolumeFacts
from infra.platform.proxy import ca_config_map_name, proxy_identity
from infra.platform.stack_name import shown_stack_name
from infra.settings import PlatformSettings
from infra.settings.kubeconfig import api_server
from infra.storages import STORAGES
from infra.storages.kind import Storage, StorageRequest


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
