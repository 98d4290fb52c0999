"""Network profile `pod-tcp`: plain TCP between pods, as on machines without InfiniBand."""

from infra.networks.profile import NetworkProfile

POD_INTERFACE = "eth0"  # the name that flannel and the bridge plugin give to a pod's interface

KIND = NetworkProfile(
    name="pod-tcp",
    environment={"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": POD_INTERFACE},
    between_pods={"GLOO_SOCKET_IFNAME": POD_INTERFACE},
    transports=("socket",),
)
