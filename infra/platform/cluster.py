"""The Kubernetes cluster: a k3s that this program installs or adopts, or an existing cluster."""

from pathlib import Path

import pulumi

from infra.dependencies import dependencies
from infra.kube_command import Connection, kube_command
from infra.platform.cluster_args import ClusterArgs
from infra.platform.former_cluster import LEADS_TO
from infra.platform.k3s import K3s
from infra.platform.provider import kubernetes_provider
from infra.platform.stack_name import shown_stack_name
from infra.settings import ClusterSettings, HostSettings
from infra.settings.kubeconfig import api_server


class Cluster(pulumi.ComponentResource):
    """The provider of all Kubernetes resources, and the commands of k3s if the cluster is a k3s.

    The first `up` sets the provider's `cluster_identifier`, and it stays the same after that.
    Otherwise a renewed certificate, another path of the kubeconfig or another address of the API
    server would look like another cluster, and the engine would replace every object.
    """

    kubeconfig: pulumi.Output[str]
    """For k3s the content of the kubeconfig, with the cluster's authority; this is a secret. For an
    existing cluster the path of the setting `kubeconfig`."""
    leads_to: pulumi.Output[str]
    """The result of `cluster_identifier`, which the next `up` compares with its own result."""

    def __init__(
        self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Register k3s, if the cluster is a k3s, and then the provider.

        Both come after the resources that `opts` names.
        """
        cluster = args.cluster
        super().__init__("disttrain:infra:Cluster", name, {"kind": cluster.kind}, opts)
        self.is_ours = cluster.installs_k3s
        """Whether `pulumi destroy` removes k3s. It leaves an adopted k3s."""
        leads_to = cluster_identifier(args.stack, args.cluster, args.host)
        self.identifier = args.identifier or leads_to
        """Names the cluster to the Kubernetes provider. If this text changes, the engine replaces
        every object in the cluster."""
        self.generation: pulumi.Output[str] = pulumi.Output.from_input("")
        """A text that changes when the k3s of this stack has become another cluster; empty for an
        adopted k3s and for an existing cluster."""
        before = dependencies(opts)
        self._k3s: K3s | None = None
        if cluster.kind == "k3s":
            child = pulumi.ResourceOptions(parent=self, depends_on=before)
            self._k3s = K3s(name, args, child)
            self.kubeconfig = self._k3s.kubeconfig
            if self.is_ours:
                self.generation = self._k3s.generation.identity
            before = [*before, self._without_copies(name, args)]
        else:
            self.kubeconfig = pulumi.Output.from_input(cluster.kubeconfig)
        self.provider = kubernetes_provider(
            f"{name}-provider",
            self.kubeconfig,
            cluster.context,
            self.identifier,
            pulumi.ResourceOptions(parent=self, depends_on=before),
            # Pods name the ConfigMap and the Secret `proxy-config`, so a change of the content must
            # not give them another name.
            changes_content=True,
        )
        self.leads_to = pulumi.Output.from_input(leads_to)
        self.register_outputs({"kubeconfig": self.kubeconfig, LEADS_TO: self.leads_to})

    def _without_copies(self, name: str, args: ClusterArgs) -> pulumi.Resource:
        """Register the command whose `delete` removes copies of the kubeconfig.

        The provider copies the kubeconfig to a file. This command is in the state before the
        provider starts. So `pulumi destroy` removes the copies even if `up` was killed before
        anything else was made.
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
        """The resource that further machines wait for, and that is deleted after them.

        It is the command that installs k3s, or this component for an existing cluster.
        """
        return self._k3s.install if self._k3s else self

    @property
    def options(self) -> pulumi.ResourceOptions:
        """Options for components whose objects are in the cluster.

        If this stack has installed k3s, its objects disappear with k3s, so the engine does not
        delete them one by one. When k3s becomes another cluster, the engine makes them again. An
        adopted k3s and an existing cluster stay, so there each object has to be deleted.
        """
        inside = pulumi.ResourceOptions(providers=[self.provider])
        if not (self._k3s and self.is_ours):
            return inside
        goes_with = pulumi.ResourceOptions(deleted_with=self._k3s.install)
        return pulumi.ResourceOptions.merge(
            pulumi.ResourceOptions.merge(inside, goes_with), self._k3s.generation.options
        )


def cluster_identifier(stack: str, cluster: ClusterSettings, host: HostSettings) -> str:
    """A text that identifies the cluster to which the settings of a stack lead."""
    return "-".join([pulumi.get_project(), stack, way_to_cluster(cluster, host)])


def way_to_cluster(cluster: ClusterSettings, host: HostSettings) -> str:
    """The part of the cluster's identifier that says where the cluster is.

    It does not depend on the path of the kubeconfig, so it is the same on every machine that runs
    Pulumi. It also stays the same when the k3s of this stack moves from one SSH host to another:
    ClusterGeneration replaces the objects then. If the identifier changed, the provider would try
    to delete the objects in a cluster that is gone.
    """
    if cluster.kind == "existing":
        where = api_server(Path(cluster.kubeconfig), cluster.context)
    elif host.ssh is None:
        where = "localhost"
    else:
        where = host.ssh.host if cluster.k3s.existing == "adopt" else "ssh"
    return "-".join(part for part in (cluster.kind, where, cluster.named_context) if part)
