"""Network profile `multus`: TCP over a second network interface, which Multus adds to each pod.

The pods' own network is often slower than the network between the machines. Where the cluster has
Multus and a NetworkAttachmentDefinition of the faster one, the ranks send their data over that.
The pods still find each other over their own network.
"""

from dataclasses import dataclass, replace

from infra.networks.attachments import annotations_of, check_attachments, interface_of
from infra.networks.profile import NetworkProfile


@dataclass(frozen=True)
class MultusOptions:
    """Options in the setting `networkOptions`.

    Args:
        attachments: names of NetworkAttachmentDefinitions, separated by commas. The ranks use the
            interface of the first one.
    """

    attachments: str

    def __post_init__(self) -> None:
        check_attachments(self.attachments)


def with_attachments(profile: NetworkProfile, options: MultusOptions) -> NetworkProfile:
    """Return the profile with the annotation for Multus, and the interface that the ranks use."""
    interface = interface_of(options.attachments)
    return replace(
        profile,
        annotations=annotations_of(options.attachments),
        environment={"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": interface},
        between_pods={"GLOO_SOCKET_IFNAME": interface},
    )


KIND = NetworkProfile(
    name="multus",
    transports=("socket",),
    options=MultusOptions,
    adapt=with_attachments,
)
