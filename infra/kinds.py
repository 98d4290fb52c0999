"""All registries of kinds.

A new kind needs one file in the folder of its registry, and one line in the registry.
"""

from infra.controllers import CONTROLLERS
from infra.deliveries import DELIVERIES
from infra.networks import NETWORKS
from infra.settings.kinds import Kinds
from infra.storages import STORAGES
from infra.workloads import WORKLOADS

KINDS = Kinds(
    workloads=WORKLOADS,
    storages=STORAGES,
    networks=NETWORKS,
    deliveries=DELIVERIES,
    controllers=CONTROLLERS,
)
