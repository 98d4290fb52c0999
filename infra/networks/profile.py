"""What a network profile adds to a training pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.registry import NoOptions


def unchanged(profile: NetworkProfile, options: object) -> NetworkProfile:
    """The profile as it is, whatever the options say."""
    del options
    return profile


@dataclass(frozen=True)
class NetworkProfile:
    """A network profile is a patch of the training pod and nothing else.

    Args:
        name: the value of the setting `network` that chooses this profile.
        environment: variables of every training container.
        between_pods: further variables, only where the ranks are in several pods.
        resources: further limits of the container, such as `{"rdma/hca": "1"}`.
        annotations: annotations of the pod, such as those of Multus.
        capabilities: Linux capabilities that the container keeps, such as `IPC_LOCK`.
        transports: by which the ranks of several pods are to reach each other, any of them: socket
            (TCP), ib, roce, efa, or the name that NCCL gives to another one. Where NCCL takes
            another, an alert says so. Empty: whatever it takes is right.
        host_network: whether the pod uses the network namespace of its node.
        for_nccl_between_pods: its devices serve NCCL between pods and nothing else, so a run on the
            CPU, or with one pod, is refused.
        options: dataclass of the keys that `networkOptions` may hold.
        adapt: works out this profile with an instance of `options`; raises ValueError, which names
            the key, where a value cannot be used.
    """

    name: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    between_pods: Mapping[str, str] = field(default_factory=dict[str, str])
    resources: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    capabilities: tuple[str, ...] = ()
    transports: tuple[str, ...] = ()
    host_network: bool = False
    for_nccl_between_pods: bool = False
    options: type = NoOptions
    adapt: Callable[[NetworkProfile, Any], NetworkProfile] = unchanged

    def with_options(self, options: object) -> NetworkProfile:
        """The profile as the settings choose it. Raises ValueError: see `adapt`."""
        return self.adapt(self, options)
