"""Network profile `rdma`: InfiniBand or RoCE, on nodes whose device plugin offers RDMA devices.

The ranks of NCCL and gloo find each other by TCP, and the devices carry NCCL's data. If the device
plugin needs a second network interface in the pod, Multus adds it.

The profile adds no capability. IPC_LOCK would have no effect, because the kernel takes capabilities
from a process that is not root. So the pods may pin as much memory as the node's container runtime
allows its processes (`ulimit -l`); docs/clusters.md says how to raise that limit.
"""

import re
from dataclasses import dataclass, replace

from infra.names import GPU_RESOURCE
from infra.networks.attachments import annotations_of, check_attachments, interface_of
from infra.networks.pod_tcp import POD_INTERFACE
from infra.networks.profile import NetworkProfile
from infra.registry import OptionError
from infra.settings.pod_labels import is_key

_GPUS = rf"{re.escape(GPU_RESOURCE)}(\..*)?|nvidia\.com/mig-.*"


@dataclass(frozen=True)
class RdmaOptions:
    """Options in the setting `networkOptions`.

    Args:
        resource: name of the resource that the device plugin offers, such as rdma/hca.
        devices: number of these that each pod gets.
        attachments: names of NetworkAttachmentDefinitions of Multus, separated by commas; empty if
            the pods need no second interface.
    """

    resource: str
    devices: int = 1
    attachments: str = ""

    def __post_init__(self) -> None:
        hint = "Set the one that `kubectl describe node` shows under Allocatable"
        if not _is_resource(self.resource):
            reason = "a resource of a device plugin has a name such as rdma/hca"
            raise OptionError("resource", reason, hint)
        if re.fullmatch(_GPUS, self.resource):
            reason = "it is a GPU, and the pods get those by gpusPerPod"
            raise OptionError("resource", reason, f"{hint} for the network cards")
        if self.devices < 1:
            raise OptionError(
                "devices", "without a device the ranks would use TCP", "Set 1 or more"
            )
        if self.attachments:
            check_attachments(self.attachments)


def _is_resource(name: str) -> bool:
    """Whether Kubernetes takes this as the name of a device plugin's resource."""
    of_kubernetes = "kubernetes.io/" in name or name.startswith("requests.")
    return "/" in name and is_key(name) and not of_kubernetes


def with_devices(profile: NetworkProfile, options: RdmaOptions) -> NetworkProfile:
    """Return the profile with its devices and, if there are any, its second interfaces."""
    attached = options.attachments
    interface = interface_of(attached) if attached else POD_INTERFACE
    return replace(
        profile,
        resources={options.resource: str(options.devices)},
        annotations=annotations_of(attached) if attached else {},
        # NCCL's ranks exchange the addresses of their devices over this interface. If the devices
        # cannot be used, it carries the data too.
        environment={"NCCL_SOCKET_IFNAME": interface},
    )


KIND = NetworkProfile(
    name="rdma",
    between_pods={"GLOO_SOCKET_IFNAME": POD_INTERFACE},
    transports=("ib", "roce"),
    contradictions={"NCCL_IB_DISABLE": ("1",), "NCCL_NET": ("Socket",)},
    for_nccl_between_pods=True,
    options=RdmaOptions,
    adapt=with_devices,
)
