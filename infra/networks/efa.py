"""Network profile `efa`: Amazon's Elastic Fabric Adapter, on nodes whose device plugin offers it.

The pods stay in the pod network, over which the ranks of NCCL and gloo find each other. The devices
carry NCCL's data. The image must have libfabric and NCCL's plugin aws-ofi-nccl. They find the
devices without any variable, and the variables that older versions needed are not set here.
https://docs.aws.amazon.com/eks/latest/userguide/node-efa.html
"""

from dataclasses import dataclass, replace

from infra.names import EFA_RESOURCE
from infra.networks.pod_tcp import POD_INTERFACE
from infra.networks.profile import NetworkProfile


@dataclass(frozen=True)
class EfaOptions:
    """Options in the setting `networkOptions`.

    Args:
        devices: number of EFA devices of each pod. A machine has 4 (p4d), 32 (p5), 16 (p5en) or 8
            (p6-b200).
    """

    devices: int


def with_devices(profile: NetworkProfile, options: EfaOptions) -> NetworkProfile:
    """Return the profile with its number of devices.

    Raises:
        ValueError: the number is less than one.
    """
    if options.devices < 1:
        raise ValueError(
            f"networkOptions.devices: {options.devices} cannot be used: without a device the ranks "
            "would use TCP. Set how many EFA devices each pod gets: those of a whole machine (p4d "
            "4, p5 32, p5en 16, p6-b200 8), or the pod's share of them"
        )
    return replace(profile, resources={EFA_RESOURCE: str(options.devices)})


KIND = NetworkProfile(
    name="efa",
    environment={
        "FI_PROVIDER": "efa",  # Otherwise libfabric may use TCP if there is no device.
        # With huge pages, which the pod does not request, a fork can fail for lack of memory.
        "FI_EFA_USE_HUGE_PAGE": "0",
        "NCCL_SOCKET_IFNAME": POD_INTERFACE,  # The ranks exchange their devices over it.
    },
    between_pods={"GLOO_SOCKET_IFNAME": POD_INTERFACE},
    transports=("efa",),
    contradictions={"FI_PROVIDER": ("tcp", "sockets"), "NCCL_NET": ("Socket",)},
    for_nccl_between_pods=True,
    options=EfaOptions,
    adapt=with_devices,
)
