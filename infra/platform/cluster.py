"""The Kubernetes cluster: k3s that this program installs, or one that exists."""

from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes

from infra.dependencies import dependencies
from infra.kube_command import Connection, kube_command
from infra.node.runner import Runner
from infra.platform.former_cluster import LEADS_TO
from infra.platform.k3s import K3s, K3sArgs, LookAtK3s
from infra.platform.stack_name import shown_stack_name
from infra.settings import (
    BundleSettings,
    ClusterSettings,
    HostSettings,
    LimitSettings,
    ProxySettings,
)
from infra.settings.kubeconfig import api_server


@dataclass(frozen=True)
class ClusterArgs:
    """What the cluster is made from.

    Args:
        stack: name of the stack.
        namespace: Kubernetes namespace of the platform, which ends before k3s does.
        cluster: which Kubernetes, and its settings.
        host: the machine on which k3s is installed.
        limits: how long pods may take to end.
        proxy: the proxies that k3s uses.
        bundle: from which k3s is taken, instead of from the network.
        runner: runs scripts on the host.
        owner: identifies the platform; noted on the host, so that nobody else takes k3s over.
        identifier: names the cluster to the Kubernetes provider, see `known_identifier`; empty:
            what `cluster_identifier` says.
        look: of `start_look`; None where there is no k3s, or its host is lost.
        shared_registry: the registry whose images k3s' nodes give each other; empty: none.
        several_servers: further machines are servers too.
    """

    stack: str
    namespace: str
    cluster: ClusterSettings
    host: HostSettings
    limits: LimitSettings
    proxy: ProxySettings
    bundle: BundleSettings | None
    runner: Runner
    owner: pulumi.Input[str] = ""
    identifier: str = ""
    look: LookAtK3s | None = None
    shared_registry: str = ""
    several_servers: bool = False


class Cluster(pulumi.ComponentResource):
    """One provider for all Kubernetes resources, and k3s where it is ours.

    The provider's `cluster_identifier` is set from the first `up`, and stays what it was then: a
    renewed certificate, another path of the kubeconfig or another address of the API server then
    never looks like another cluster, which would replace everything.
    """

    kubeconfig: pulumi.Output[str]
    """For k3s its content (a secret), with the cluster's authority; else the path given."""
    leads_to: pulumi.Output[str]
    """What `cluster_identifier` says of the settings; the next `up` compares it with its own."""

    def __init__(
        self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Register k3s, if there is one, after what `opts` says, and the provider after it."""
        cluster = args.cluster
        super().__init__("disttrain:infra:Cluster", name, {"kind": cluster.kind}, opts)
        self.is_ours = cluster.kind == "k3s" and cluster.k3s.existing == "refuse"
        """Whether k3s goes with this stack; an adopted one stays."""
        leads_to = cluster_identifier(args.stack, args.cluster, args.host)
        self.identifier = args.identifier or leads_to
        """Names the cluster to the Kubernetes provider; another one replaces all that is in it."""
        self.generation: pulumi.Output[str] = pulumi.Output.from_input("")
        """Another text when our own k3s has become another cluster; else empty."""
        before = dependencies(opts)
        self._k3s: K3s | None = None
        if cluster.kind == "k3s":
            child = pulumi.ResourceOptions(parent=self, depends_on=before)
            self._k3s = K3s(name, _k3s_args(args), child)
            self.kubeconfig = self._k3s.kubeconfig
            if self.is_ours:
                self.generation = self._k3s.generation.identity
            before = [*before, self._without_copies(name, args)]
        else:
            self.kubeconfig = pulumi.Output.from_input(cluster.kubeconfig)
        self.provider = kubernetes.Provider(
            f"{name}-provider",
            kubeconfig=self.kubeconfig,
            context=cluster.context or None,
            cluster_identifier=self.identifier,
            enable_config_map_mutable=True,  # proxy-config keeps its name
            enable_secret_mutable=True,
            opts=pulumi.ResourceOptions(parent=self, depends_on=before),
        )
        self.leads_to = pulumi.Output.from_input(leads_to)
        self.register_outputs({"kubeconfig": self.kubeconfig, LEADS_TO: self.leads_to})

    def _without_copies(self, name: str, args: ClusterArgs) -> pulumi.Resource:
        """Stands in the state before the provider starts, which copies the kubeconfig to a file.

        So `destroy` removes the copies also where nothing else had been made when `up` was killed.
        """
        connection = Connection(
            kubeconfig=self.kubeconfig,
            kubeconfig_is_path=False,
            context="",
            namespace=args.namespace,
            stack=shown_stack_name(args.stack),
            owner=pulumi.Output.from_input(args.owner),
        )
        opts = pulumi.ResourceOptions(parent=self)
        return kube_command(f"{name}-copies", "copies", connection, {}, opts)

    @property
    def server(self) -> pulumi.Resource:
        """What further machines wait for, and what goes after them: k3s, or an existing cluster."""
        return self._k3s.install if self._k3s else self

    @property
    def options(self) -> pulumi.ResourceOptions:
        """Options of components whose objects lie in the cluster.

        What lies in our own k3s goes with it, without being deleted object by object, and comes
        back with the next one. A k3s that was adopted stays, and so each object in it has to be
        deleted.
        """
        inside = pulumi.ResourceOptions(providers=[self.provider])
        if not (self._k3s and self.is_ours):
            return inside
        goes_with = pulumi.ResourceOptions(deleted_with=self._k3s.install)
        return pulumi.ResourceOptions.merge(
            pulumi.ResourceOptions.merge(inside, goes_with), self._k3s.generation.options
        )


def cluster_identifier(stack: str, cluster: ClusterSettings, host: HostSettings) -> str:
    """A text for the cluster to which the settings lead, the same on every machine, wherever the
    kubeconfig lies there.

    Our own k3s keeps it also on another host: what is in it is replaced with ClusterGeneration,
    since the provider would delete it in a cluster that is gone.
    """
    if cluster.kind == "existing":
        where = api_server(Path(cluster.kubeconfig), cluster.context)
    elif host.ssh is None:
        where = "localhost"
    else:
        where = host.ssh.host if cluster.k3s.existing == "adopt" else "ssh"
    parts = [pulumi.get_project(), stack, cluster.kind, where, cluster.named_context]
    return "-".join(part for part in parts if part)


def _k3s_args(args: ClusterArgs) -> K3sArgs:
    return K3sArgs(
        stack=shown_stack_name(args.stack),
        namespace=args.namespace,
        cluster=args.cluster,
        host=args.host,
        grace_seconds=args.limits.termination_grace_seconds,
        proxy=args.proxy,
        bundle=args.bundle,
        runner=args.runner,
        owner=args.owner,
        look=args.look,
        shared_registry=args.shared_registry,
        several_servers=args.several_servers,
    )
