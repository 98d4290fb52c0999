"""Network profile `efa`: Amazon's Elastic Fabric Adapter, on nodes whose device plugin offers it.

The pods stay in the pods' network, over which NCCL and gloo meet; the devices carry the data. The
image has to have libfabric and NCCL's plugin aws-ofi-nccl, which need no variable to find the
devices; what older versions of them needed is set by none here.
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
        devices: EFA devices of each pod; a machine has 4 (p4d), 32 (p5), 16 (p5en), 8 (p6-b200).
    """

    devices: int


def with_devices(profile: NetworkProfile, options: EfaOptions) -> NetworkProfile:
    """The profile with its devices.

    Raises:
        ValueError: it would have none.
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
        "FI_PROVIDER": "efa",  # else libfabric may take TCP where there is no device
        # With huge pages, which the pod does not ask for, a fork can fail for want of memory.
        "FI_EFA_USE_HUGE_PAGE": "0",
        "NCCL_SOCKET_IFNAME": POD_INTERFACE,  # over which the ranks tell each other their devices
    },
    between_pods={"GLOO_SOCKET_IFNAME": POD_INTERFACE},
    transports=("efa",),
    for_nccl_between_pods=True,
    options=EfaOptions,
    adapt=with_devices,
)
