"""Defines what a network profile is: what it adds to a training pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.registry import NoOptions


def unchanged(profile: NetworkProfile, options: object) -> NetworkProfile:
    """Return the profile unchanged. It is the `adapt` of a profile without options."""
    del options
    return profile


@dataclass(frozen=True)
class NetworkProfile:
    """A network profile: what is added to each training pod, and nothing else.

    Args:
        name: the value of the setting `network` that chooses this profile.
        environment: variables of every training container.
        between_pods: further variables, which are only set if the run has several pods.
        resources: further limits of the container, such as `{"rdma/hca": "1"}`.
        annotations: annotations of the pod, such as those of Multus.
        transports: the transports of which the ranks of several pods should use one: socket (TCP),
            ib, roce, efa, or the name that NCCL gives to another one. If NCCL uses another one, an
            alert says so. Empty: every transport is right.
        contradictions: variables of the user that would take this network from the ranks, each with
            the values that would, and that are refused.
        host_network: whether the pod uses the network namespace of its node.
        for_nccl_between_pods: whether its devices are only of use to NCCL between pods. A run on
            the CPU or with one pod is then refused.
        options: dataclass of the keys that `networkOptions` may hold.
        adapt: returns this profile for an instance of `options`, or raises ValueError, which names
            the key, if a value cannot be used.
    """

    name: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    between_pods: Mapping[str, str] = field(default_factory=dict[str, str])
    resources: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    transports: tuple[str, ...] = ()
    contradictions: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]]
    )
    host_network: bool = False
    for_nccl_between_pods: bool = False
    options: type = NoOptions
    adapt: Callable[[NetworkProfile, Any], NetworkProfile] = unchanged

    def with_options(self, options: object) -> NetworkProfile:
        """Return the profile with these options. It raises ValueError as `adapt` does."""
        return self.adapt(self, options)
