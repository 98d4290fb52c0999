"""The Kubernetes cluster: k3s that this program installs, or one that exists."""

import pulumi
import pulumi_kubernetes as kubernetes
import yaml

from infra.bundled import bundle_variables
from infra.proxy import k3s_proxy_environment
from infra.runner import HostCommand, Runner
from infra.settings import Settings
from infra.tunnel import tunnelled


class Cluster(pulumi.ComponentResource):
    """One provider for all Kubernetes resources, and k3s where it is ours.

    The provider's `cluster_identifier` is set from the first `up`: a renewed certificate or an
    address in the kubeconfig then never looks like another cluster, which would replace everything.
    """

    kubeconfig: pulumi.Output[str]
    """For k3s its content (a secret), with the cluster's CA; else the path that was given."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        runner: Runner,
        depends_on: list[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Install k3s after `depends_on`: `destroy` takes these away later than k3s."""
        cluster = settings.cluster
        super().__init__("disttrain:infra:Cluster", name, {"kind": cluster.kind}, opts)
        self.install: HostCommand | None = None
        if cluster.kind == "k3s":
            self.install = self._install_k3s(name, settings, runner, depends_on)
            self.kubeconfig = self._fetch_kubeconfig(name, settings, runner, self.install)
        else:
            self.kubeconfig = pulumi.Output.from_input(cluster.kubeconfig)
        self.provider = kubernetes.Provider(
            f"{name}-provider",
            kubeconfig=self.kubeconfig,
            context=cluster.context or None,
            cluster_identifier=_identifier(settings),
            enable_config_map_mutable=True,  # proxy-config keeps its name
            enable_secret_mutable=True,
            opts=pulumi.ResourceOptions(parent=self, depends_on=depends_on),
        )
        self.register_outputs({"kubeconfig": self.kubeconfig})

    @property
    def options(self) -> pulumi.ResourceOptions:
        """For components with Kubernetes resources; what lies in our k3s goes with it."""
        return pulumi.ResourceOptions(providers=[self.provider], deleted_with=self.install)

    def _install_k3s(
        self,
        name: str,
        settings: Settings,
        runner: Runner,
        depends_on: list[pulumi.Resource],
    ) -> HostCommand:
        cluster, k3s = settings.cluster, settings.cluster.k3s
        variables: dict[str, pulumi.Input[str]] = {
            "K3S_VERSION": k3s.version,
            "K3S_SHA256": k3s.sha256,
            "K3S_INSTALLER_SHA256": k3s.installer_sha256,
            "K3S_MIRROR": k3s.mirror,
            "K3S_EXISTING": k3s.existing,
            "K3S_FORCE": "true" if k3s.force else "",
            "K3S_REGISTRIES": k3s.registries.output if k3s.registries else "",
            "POD_CIDR": cluster.pod_cidr,
            "SERVICE_CIDR": cluster.service_cidr,
            "TLS_SAN": cluster.node_address,
            "NAMESPACE": settings.namespace,
            "GRACE_SECONDS": str(settings.limits.termination_grace_seconds),
            **bundle_variables(settings),
            **k3s_proxy_environment(settings.proxy),
        }
        timeouts = pulumi.CustomTimeouts(create="15m", update="15m", delete="10m")
        return runner.script(
            f"{name}-k3s",
            "k3s-install.sh",
            variables,
            pulumi.ResourceOptions(parent=self, depends_on=depends_on, custom_timeouts=timeouts),
        )

    def _fetch_kubeconfig(
        self, name: str, settings: Settings, runner: Runner, install: HostCommand
    ) -> pulumi.Output[str]:
        """A command of its own: its output stays known while the install's inputs change."""
        ssh, tunnel = settings.host.ssh, settings.cluster.tunnel
        host = ssh.host if ssh and not tunnel else "127.0.0.1"
        command = runner.script(
            f"{name}-kubeconfig",
            "k3s-kubeconfig.sh",
            {"SERVER_HOST": f"[{host}]" if ":" in host else host},
            pulumi.ResourceOptions(parent=self, depends_on=[install]),
            quiet=True,
        )
        if ssh is None or not tunnel:
            return pulumi.Output.secret(command.stdout)
        spec = ssh.for_ssh_files()
        return pulumi.Output.secret(command.stdout).apply(
            lambda text: yaml.safe_dump(tunnelled(yaml.safe_load(text), spec))
        )


def _identifier(settings: Settings) -> str:
    """Names the cluster; another one means other resources."""
    cluster, ssh = settings.cluster, settings.host.ssh
    where = cluster.kubeconfig or (ssh.host if ssh else "localhost")
    parts = [pulumi.get_project(), settings.stack, cluster.kind, where, cluster.context]
    return "-".join(part for part in parts if part)
