"""Which Kubernetes: k3s that we install on the node, or an existing cluster."""

import ipaddress
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast

from infra.settings.kubeconfig import api_server_host
from infra.settings.node import INTERFACE, INTERFACE_FORM, HostSettings
from infra.settings.reader import Reader
from infra.settings.secret import Secret
from infra.settings.setting_error import SettingError

# Words for a cluster that somebody else has made.
_OF_OTHERS = ("eks", "gke", "aks", "kubernetes", "k8s", "openshift", "rke2", "kind", "minikube")


@dataclass(frozen=True)
class K3sSettings:
    """How k3s gets to the host; `registries` is the text of registries.yaml."""

    version: str
    sha256: str
    installer_sha256: str
    mirror: str
    existing: Literal["refuse", "adopt"]
    force: bool
    registries: Secret | None


@dataclass(frozen=True)
class ClusterSettings:
    """Which Kubernetes; kubeconfig, context, kubectl and grows are for an existing one.

    `node_interface` is the network interface of the first machine whose address is its node's own;
    empty: that of the default route. `interface_address` is the address that it has to have; empty
    where nodeAddress does not say one.
    """

    kind: Literal["k3s", "existing"]
    kubeconfig: str
    context: str
    kubectl: str
    k3s: K3sSettings
    tunnel: bool
    pod_cidr: str
    service_cidr: str
    node_address: str
    node_interface: str
    interface_address: str
    grows: bool


def read_cluster(reader: Reader, host: HostSettings) -> ClusterSettings:
    """Read which cluster it is; `host` gives the node's address where no key does."""
    kind = reader.choice("cluster", ("k3s", "existing"), dict.fromkeys(_OF_OTHERS, "existing"))
    kind = cast(Literal["k3s", "existing"], kind)
    kubeconfig, context = reader.text("kubeconfig"), reader.text("kubeContext")
    address = reader.text(
        "nodeAddress", pattern=r"[A-Za-z0-9.:-]*", form="a host or address", example="10.1.2.3"
    )
    interface = _read_interface(reader, kind, k3s := _read_k3s(reader))
    interface_address = _normal(address) if interface else ""
    if kind == "existing" and not kubeconfig:
        reader.problem(
            "kubeconfig",
            "",
            "cluster: existing is reached by a kubeconfig",
            "Set the path of one on this machine",
        )
    elif kind == "existing":
        kubeconfig = str(Path(kubeconfig).expanduser())
        try:
            server = api_server_host(Path(kubeconfig), context)
        except SettingError as refused:
            reader.problem("kubeconfig", kubeconfig, refused.reason, refused.hint)
        else:
            address = address or server
    elif kubeconfig or context:
        reader.problem(
            "kubeconfig" if kubeconfig else "kubeContext",
            kubeconfig or context,
            "with cluster: k3s the kubeconfig comes from the k3s that is installed",
            "Remove it, or set cluster: existing",
        )
    if kind == "existing" and host.ssh:
        reader.problem(
            "host",
            "ssh",
            "with cluster: existing the image is imported on the machine that runs Pulumi, and "
            "the data folder would be made on another one",
            "Set host: local and run Pulumi on the cluster's node",
        )
    if not address and host.ssh:
        address = host.ssh.host
    pods, services = _read_cidr(reader, "podCidr"), _read_cidr(reader, "serviceCidr")
    if pods and services and pods.version == services.version and pods.overlaps(services):
        reader.problem(
            "podCidr",
            str(pods),
            f"it overlaps with serviceCidr {services}",
            "Set two networks that have no address in common",
        )
    elif kind == "k3s" and pods and services and pods.version != services.version:
        reader.problem(
            "podCidr",
            str(pods),
            f"serviceCidr {services} is of IPv{services.version}, and k3s takes no networks of two "
            "kinds",
            "Set both to networks of IPv4, or both to networks of IPv6",
        )
    tunnel = reader.choice("clusterAccess", ("direct", "tunnel")) == "tunnel"
    if tunnel and (kind == "existing" or host.ssh is None):
        reader.problem(
            "clusterAccess",
            "tunnel",
            "a tunnel leads to k3s through the node's SSH server (cluster: k3s, host: ssh)",
            "Set direct",
        )
    return ClusterSettings(
        kind=kind,
        kubeconfig=kubeconfig,
        context=context,
        kubectl=reader.text("kubectl", pattern=r"[^\r\n]+", form="a command", example="kubectl"),
        k3s=k3s,
        tunnel=tunnel,
        pod_cidr=str(pods or ""),
        service_cidr=str(services or ""),
        node_address=address,
        node_interface=interface,
        interface_address=interface_address,
        grows=_read_grows(reader, kind),
    )


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
    """An address as the system writes it; empty for a name, since it may stand for several."""
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


def read_pod_policy(reader: Reader) -> PodPolicyChoice:
    """Read what the API server does with a pod that breaks a rule."""
    return cast(PodPolicyChoice, reader.choice("podPolicy", ("none", "warn", "deny")))


def _read_k3s(reader: Reader) -> K3sSettings:
    sha256 = reader.checksum("k3sSha256")
    installer = reader.checksum("k3sInstallerSha256")
    mirror = reader.text(
        "k3sMirror",
        pattern=r"(https?://[^\s@]+)?",
        form="an http(s) address without user and password",
        example="https://mirror.example.com/k3s",
    )
    if mirror.startswith("http://") and not (sha256 and installer):
        reader.problem(
            "k3sMirror",
            mirror,
            "a download by http could be changed on its way",
            "Set an https address, or both k3sSha256 and k3sInstallerSha256",
        )
    return K3sSettings(
        version=reader.text(
            "k3sVersion",
            pattern=r"v\d+\.\d+\.\d+\+k3s\d+",
            form="a release of k3s",
            example="v1.34.2+k3s1",
        ),
        sha256=sha256,
        installer_sha256=installer,
        mirror=mirror.rstrip("/"),
        existing=cast(
            Literal["refuse", "adopt"], reader.choice("k3sExisting", ("refuse", "adopt"))
        ),
        force=reader.boolean("k3sForce"),
        registries=_read_registries(reader),
    )


def _read_registries(reader: Reader) -> Secret | None:
    """As YAML text; JSON is YAML too, and needs no library to be written."""
    reader.hide("k3sRegistries")
    content = reader.mapping("k3sRegistries")
    text = json.dumps(content, indent=2, sort_keys=True)
    if re.search(r'"(password|auth|identity_token)": "', text):
        reader.require_encrypted("k3sRegistries")
    return Secret(text) if content else None


def _read_cidr(reader: Reader, key: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    text = reader.text(key)
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        reader.problem(key, text, "it is not a network", "Write it like 10.42.0.0/16")
        return None
