"""Reads which Kubernetes is used: a k3s that this stack installs, or an existing cluster."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast

from infra.settings.address import check_address
from infra.settings.cluster_k3s import K3sSettings, read_k3s
from infra.settings.cluster_networks import check_node_address, read_networks
from infra.settings.gpu_regime import k3s_version
from infra.settings.kubeconfig import api_server_host, check_paths, current_context
from infra.settings.local_path import from_home
from infra.settings.node import INTERFACE, INTERFACE_FORM, HostSettings
from infra.settings.project import PROJECT_ROOT
from infra.settings.reader import Reader
from infra.settings.setting_error import SettingError

# Words that users may write for `existing`, a cluster that somebody else has made.
_OF_OTHERS = ("eks", "gke", "aks", "kubernetes", "k8s", "openshift", "rke2", "kind", "minikube")


@dataclass(frozen=True)
class ClusterSettings:
    """Which Kubernetes is used, and how it is reached.

    `kubeconfig`, `context`, `kubectl` and `grows` are only used with an existing cluster.

    `context` is the setting `kubeContext`. If that is empty, it is the current context of the
    kubeconfig at this moment. It is kept in the state, so that a later `destroy` uses the same
    cluster, even if the current context has changed. `named_context` is the setting alone.

    `node_interface` names the network interface of the first machine whose address the node has.
    If it is empty, the interface of the default route is used. `interface_address` is the address
    that this interface must have; it is empty if `nodeAddress` holds no IP address, or if
    `node_interface` is empty.
    """

    kind: Literal["k3s", "existing"]
    kubeconfig: str
    context: str
    named_context: str
    kubectl: str
    k3s: K3sSettings
    tunnel: bool
    pod_cidr: str
    service_cidr: str
    node_address: str
    node_interface: str
    interface_address: str
    grows: bool

    @property
    def installs_k3s(self) -> bool:
        """Whether it is a k3s that this stack installs, and no k3s that it only adopts."""
        return self.kind == "k3s" and self.k3s.existing == "refuse"


def read_cluster(reader: Reader, host: HostSettings) -> ClusterSettings:
    """Read which cluster is used. The node's address comes from `host` if no setting says it."""
    kind = reader.choice("cluster", ("k3s", "existing"), dict.fromkeys(_OF_OTHERS, "existing"))
    kind = cast(Literal["k3s", "existing"], kind)
    k3s = read_k3s(reader)
    given_address = reader.text(
        "nodeAddress", pattern=r"[A-Za-z0-9.:-]*", form="a host or address", example="10.1.2.3"
    )
    check_address(reader, "nodeAddress", given_address)
    interface = _read_interface(reader, kind, k3s)
    named_context = reader.text("kubeContext")
    kubeconfig, context, server = _read_kubeconfig(reader, kind, named_context)
    _check_host(reader, kind, host)
    pod_cidr, service_cidr = read_networks(reader, is_k3s=kind == "k3s")
    is_installed = kind == "k3s" and k3s.existing == "refuse"
    check_node_address(reader, given_address, (pod_cidr, service_cidr) if is_installed else ())
    return ClusterSettings(
        kind=kind,
        kubeconfig=kubeconfig,
        context=context,
        named_context=named_context,
        kubectl=_read_kubectl(reader),
        k3s=k3s,
        tunnel=_read_tunnel(reader, kind, host),
        pod_cidr=pod_cidr,
        service_cidr=service_cidr,
        node_address=given_address or server or (host.ssh.host if host.ssh else ""),
        node_interface=interface,
        interface_address=_normal(given_address) if interface else "",
        grows=_read_grows(reader, kind),
    )


def lacks_address(reader: Reader, cluster: ClusterSettings) -> bool:
    """Whether no setting says the first machine's address, and none that could is wrong itself."""
    return not cluster.node_address and reader.are_right("kubeconfig", *address_keys(reader))


def address_keys(reader: Reader) -> tuple[str, ...]:
    """The settings that say the first machine's address; sshHost is one only with host: ssh."""
    return ("nodeAddress", *(["sshHost"] if reader.raw("host") == "ssh" else []))


def _read_kubectl(reader: Reader) -> str:
    command = reader.command("kubectl")
    if not command and reader.are_right("kubectl"):
        reader.problem("kubectl", command, "it is not a command", "Write it like kubectl")
    return command


def _read_kubeconfig(reader: Reader, kind: str, context: str) -> tuple[str, str, str]:
    """Return the path of the kubeconfig, the context, and the API server's host if it is known.

    `context` is the setting `kubeContext`. If it is empty, the file's current context is returned.
    """
    path = reader.text("kubeconfig")
    if kind == "k3s":
        if path or context:
            reader.problem(
                "kubeconfig" if path else "kubeContext",
                path or context,
                "with cluster: k3s the kubeconfig comes from the k3s that is installed",
                "Remove it, or set cluster: existing",
            )
        return path, context, ""
    if not path:
        reader.problem(
            "kubeconfig",
            "",
            "cluster: existing is reached by a kubeconfig",
            "Set the path of one on this machine",
        )
        return "", context, ""
    path = str(from_home(path))
    try:
        context = context or current_context(Path(path))
        host = api_server_host(Path(path), context)
        check_paths(Path(path), context, PROJECT_ROOT)
        return path, context, host
    except SettingError as refused:
        reader.problem("kubeconfig", path, refused.reason, refused.hint)
        return path, context, ""


def _check_host(reader: Reader, kind: str, host: HostSettings) -> None:
    if kind == "existing" and host.ssh:
        reader.problem(
            "host",
            "ssh",
            "with cluster: existing nothing is done by SSH: the cluster is reached by its "
            "kubeconfig, and imageDelivery: import brings the image to this machine alone",
            "Set host: local, and imageDelivery: registry unless Pulumi runs on the cluster's node",
        )


def _read_tunnel(reader: Reader, kind: str, host: HostSettings) -> bool:
    tunnel = reader.choice("clusterAccess", ("direct", "tunnel")) == "tunnel"
    if tunnel and (kind == "existing" or host.ssh is None):
        reader.problem(
            "clusterAccess",
            "tunnel",
            "a tunnel leads to k3s through the node's SSH server (cluster: k3s, host: ssh)",
            "Set direct",
        )
    return tunnel


def _read_interface(reader: Reader, kind: str, k3s: K3sSettings) -> str:
    pattern = f"({INTERFACE})?"
    name = reader.text("nodeInterface", pattern=pattern, form=INTERFACE_FORM, example="eth1")
    if name and (kind != "k3s" or k3s.existing != "refuse"):
        reader.problem(
            "nodeInterface",
            name,
            "it is chosen where this stack installs k3s, and this cluster is not its own",
            "Remove it",
        )
    return name


def _normal(text: str) -> str:
    """An IP address in its normal form; empty for a host name, which may have several addresses."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def _read_grows(reader: Reader, kind: str) -> bool:
    grows = reader.boolean("clusterGrows")
    if grows and kind != "existing":
        reason = "k3s only has the machines of this stack"
        reader.problem("clusterGrows", "true", reason, "Remove it, or set cluster: existing")
    return grows


PodPolicyChoice: TypeAlias = Literal["none", "warn", "deny"]
POD_POLICY_FROM = (1, 30, 0)  # the first version that serves ValidatingAdmissionPolicy v1


def read_pod_policy(reader: Reader, cluster: ClusterSettings) -> PodPolicyChoice:
    """Read what the API server does with a pod that breaks a rule.

    Args:
        reader: gives the value and collects the problems with it.
        cluster: the settings of the cluster. A k3s that the stack installs must be new enough.
    """
    choice = reader.choice("podPolicy", ("none", "warn", "deny"))
    version = k3s_version(cluster.k3s.version)
    if choice != "none" and cluster.installs_k3s and () < version < POD_POLICY_FROM:
        reader.problem(
            "podPolicy",
            choice,
            f"k3sVersion is {cluster.k3s.version}, and Kubernetes checks pods by such rules from "
            "1.30 on",
            "Set a newer k3sVersion, or set podPolicy to none",
        )
    return cast(PodPolicyChoice, choice)
