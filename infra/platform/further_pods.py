"""Whether pods on further machines would find what they need."""

import pulumi

from infra.deliveries import DELIVERIES
from infra.names import ONE_NODE
from infra.settings import PlatformSettings
from infra.settings.nodes import shown_nodes
from infra.storages.kind import Storage


def check_nodes(settings: PlatformSettings, storage: Storage) -> None:
    """Look at the storage and at the delivery of the image.

    Raises:
        pulumi.RunError: pods on further machines would miss the data or the image.
    """
    if not settings.nodes:
        return
    shown = shown_nodes(settings.nodes)
    if storage.folder_on_host and storage.access_mode == ONE_NODE:
        raise pulumi.RunError(
            f"nodes: {shown} cannot be used: the storage ({settings.storage_kind.name}) is a "
            "folder of the first machine, and pods on these would not find their data. Set "
            "storage: nfs or nfs-first-node, or, where the folder is the same one on every "
            "machine, storageOptions.shared: true."
        )
    delivery = DELIVERIES[settings.delivery.name]
    if delivery.needs_node and not delivery.serves_further:
        raise pulumi.RunError(
            f"nodes: {shown} cannot be used: imageDelivery: {settings.delivery.name} brings the "
            "image only to the first machine, and pods on these could not start. Set "
            "imageDelivery: import, mirror or registry."
        )
