"""The ways to bring the trainer image to the nodes: the choices of the setting `imageDelivery`."""

from infra.deliveries import import_, mirror, registry
from infra.deliveries.kind import DeliveryKind
from infra.registry import Registry

DELIVERIES: Registry[DeliveryKind] = Registry(
    "imageDelivery", [import_.KIND, registry.KIND, mirror.KIND]
)
