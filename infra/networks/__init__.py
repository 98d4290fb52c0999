"""The network profiles: the choices of the setting `network`."""

from infra.networks import efa, multus, pod_tcp, rdma
from infra.networks.profile import NetworkProfile
from infra.registry import Registry

NETWORKS: Registry[NetworkProfile] = Registry(
    "network", [pod_tcp.KIND, multus.KIND, rdma.KIND, efa.KIND]
)
