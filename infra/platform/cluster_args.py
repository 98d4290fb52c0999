"""What a cluster is made from."""

from dataclasses import dataclass

import pulumi

from infra.node.runner import Runner
from infra.platform.k3s_state import FutureObservation
from infra.settings import (
    BundleSettings,
    ClusterSettings,
    HostSettings,
    LimitSettings,
    ProxySettings,
)


@dataclass(frozen=True)
class ClusterArgs:
    """What the cluster is made from.

    Args:
        stack: name of the stack.
        namespace: Kubernetes namespace of the platform. Its pods end before k3s is removed.
        cluster: which Kubernetes it is, and its settings.
        host: the machine on which k3s is installed.
        limits: say how long pods may take to end.
        proxy: the proxies that k3s uses.
        bundle: the air-gap bundle from which k3s is installed; None: it is downloaded.
        runner: runs scripts on the host.
        owner: the identity of the platform. It is recorded on the host, so that no other stack
            takes k3s over.
        identifier: names the cluster to the Kubernetes provider, see `known_identifier`; empty: the
            result of `cluster_identifier` is used.
        observation: the result of `start_observing_k3s`; None if there is no k3s, or
            if its host is lost.
        shared_registry: the registry whose images k3s' nodes give each other; empty: none.
        several_servers: whether further machines are servers too, so that k3s has to keep the
            cluster's data in etcd.
    """

    stack: str
    namespace: str
    cluster: ClusterSettings
    host: HostSettings
    limits: LimitSettings
    proxy: ProxySettings
    bundle: BundleSettings | None
    runner: Runner
    owner: pulumi.Input[str]
    identifier: str
    observation: FutureObservation | None
    shared_registry: str
    several_servers: bool
