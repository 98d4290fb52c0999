"""The programs that make up the node: names, certificates, command lines and first objects."""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.layout import Layout
from sandbox.network import (
    DNS_SERVICE,
    KUBERNETES_SERVICE,
    POD_CIDR,
    SERVICE_CIDR,
    Link,
    pods_of,
)
from sandbox.pki import CA, SERVICE_ACCOUNT_KEY, Certificate
from sandbox.processes import Component

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
API_PORT = 6443
COREDNS_READY_PORT = 8181
PROXY_HEALTH_PORT = 10256
MIRROR_PORT = 5001
CLUSTER_DOMAIN = "cluster.local"
VOLUME_PLUGINS = "/var/lib/kubelet/volume-plugins"
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))  # Debian's, upstream's
CNI_PLUGINS = ("ptp", "host-local", "portmap", "loopback")
NODE_COMPONENTS = ("containerd", "kubelet", "kube-proxy")  # on every node
MIRROR = "image-mirror"  # runs on the first node of several
COMPONENTS = (
    "etcd",
    "containerd",
    "kube-apiserver",
    "kubelet",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "coredns",
)
PROGRAMS = (*(name for name in COMPONENTS if name != "containerd"), "kubectl", "pause")
# Each program's client certificate, and the user name that Kubernetes' default roles know.
CLIENTS = {
    "kube-controller-manager": "system:kube-controller-manager",
    "kube-scheduler": "system:kube-scheduler",
    "kube-proxy": "system:kube-proxy",
    "coredns": "system:coredns",
}


FRONT_PROXY = "front-proxy-client"  # the API server's user name at further API servers


def _front_proxy(pki: Path) -> tuple[str, ...]:
    """Options with which the API server hands requests on to pods that serve an API group.

    https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/
    """
    return (
        f"--requestheader-client-ca-file={pki}/{CA}.crt",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki}/{FRONT_PROXY}.crt",
        f"--proxy-client-key-file={pki}/{FRONT_PROXY}.key",
    )


def certificates(layout: Layout, link: Link) -> list[Certificate]:
    """The certificates of all programs, each with only the rights that its program needs."""
    api_names = ["localhost", layout.node_name]
    service = ["kubernetes", "default", "svc", *CLUSTER_DOMAIN.split(".")]
    api_names += [".".join(service[:length]) for length in (1, 2, 3, len(service))]
    api_addresses = ["127.0.0.1", str(link.node), str(KUBERNETES_SERVICE)]
    return [
        Certificate("admin", "admin", group="system:masters"),
        *node_certificates(layout, link),
        Certificate("apiserver-kubelet-client", "kube-apiserver-kubelet-client"),
        Certificate(FRONT_PROXY, FRONT_PROXY),
        *(Certificate(file, user) for file, user in CLIENTS.items() if file != "kube-proxy"),
        Certificate(
            "apiserver",
            "kube-apiserver",
            "serverAuth",
            alternative_names=(
                *(f"DNS:{name}" for name in api_names),
                *(f"IP:{address}" for address in api_addresses),
            ),
        ),
    ]


def node_certificates(layout: Layout, link: Link) -> list[Certificate]:
    """The certificates of the programs that run on every node."""
    return [
        Certificate("kubelet-client", f"system:node:{layout.node_name}", group="system:nodes"),
        Certificate("kube-proxy", CLIENTS["kube-proxy"]),
        Certificate(
            "kubelet-server",
            f"system:node:{layout.node_name}",
            "serverAuth",
            group="system:nodes",
            alternative_names=(f"DNS:{layout.node_name}", f"IP:{link.node}"),
        ),
    ]


def node_components(layout: Layout, link: Link, bin_dir: Path) -> dict[str, Component]:
    """The programs that run on every node, by name."""
    run = layout.run
    programs = [
        _component(host_program("containerd"), f"--config={run}/containerd.toml"),
        _component(
            bin_dir / "kubelet",
            f"--config={run}/kubelet.json",
            f"--kubeconfig={run}/kubelet-client.kubeconfig",
            f"--hostname-override={layout.node_name}",
            f"--node-ip={link.node}",
        ),
        _component(
            bin_dir / "kube-proxy",
            f"--config={run}/kube-proxy.json",
            f"--hostname-override={layout.node_name}",
        ),
    ]
    return {component.name: component for component in programs}


def first_components(layout: Layout, link: Link, bin_dir: Path) -> list[Component]:
    """The programs that start first: etcd, containerd and the API server."""
    etcd = f"unix://{layout.run}/etcd.sock"  # no TCP port, so that only root can reach it
    pki = layout.pki
    return [
        _component(
            bin_dir / "etcd",
            f"--data-dir={layout.run}/etcd",
            f"--listen-client-urls={etcd}",
            "--advertise-client-urls=http://localhost:2379",  # etcd wants a value; nobody uses it
            f"--listen-peer-urls=unix://{layout.run}/etcd-peer.sock",
            "--unsafe-no-fsync",  # faster; `down` deletes the data, so a power cut costs nothing
        ),
        node_components(layout, link, bin_dir)["containerd"],
        _component(
            bin_dir / "kube-apiserver",
            f"--etcd-servers={etcd}",
            f"--advertise-address={link.node}",
            f"--secure-port={API_PORT}",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/{CA}.crt",
            *_front_proxy(pki),
            "--anonymous-auth=false",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--service-account-issuer=https://kubernetes.default.svc." + CLUSTER_DOMAIN,
            f"--service-account-key-file={pki}/{SERVICE_ACCOUNT_KEY}",
            f"--service-account-signing-key-file={pki}/{SERVICE_ACCOUNT_KEY}",
            f"--kubelet-certificate-authority={pki}/{CA}.crt",
            f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
            f"--kubelet-client-key={pki}/apiserver-kubelet-client.key",
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
        ),
    ]


def later_components(layout: Layout, link: Link, bin_dir: Path) -> list[Component]:
    """The programs that start once the API server answers."""
    run, pki = layout.run, layout.pki
    of_node = node_components(layout, link, bin_dir)
    return [
        of_node["kubelet"],
        _component(
            bin_dir / "kube-controller-manager",
            f"--kubeconfig={run}/kube-controller-manager.kubeconfig",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={pki}/{SERVICE_ACCOUNT_KEY}",
            f"--root-ca-file={pki}/{CA}.crt",
            "--kube-api-qps=200",  # at the default rate its first 40 service accounts take 5 s
            "--kube-api-burst=400",
            "--flex-volume-plugin-dir=" + VOLUME_PLUGINS,
            "--allocate-node-cidrs=true",
            f"--cluster-cidr={POD_CIDR}",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--profiling=false",
        ),
        _component(
            bin_dir / "kube-scheduler",
            f"--kubeconfig={run}/kube-scheduler.kubeconfig",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--profiling=false",
        ),
        of_node["kube-proxy"],
        _component(bin_dir / "coredns", "-conf", f"{run}/Corefile"),
    ]


def manifests(link: Link) -> Mapping[str, Any]:
    """Objects of a new cluster: role bindings that Kubernetes does not make, and the DNS Service.

    CoreDNS runs as a process beside the kubelet and not in a pod, so that no image has to be
    fetched. Therefore the EndpointSlice of its Service is written here.
    """
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    items: list[Mapping[str, Any]] = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["services", "pods", "namespaces"],
                    "verbs": ["list", "watch"],
                },
                {
                    "apiGroups": ["discovery.k8s.io"],
                    "resources": ["endpointslices"],
                    "verbs": ["list", "watch"],
                },
            ],
        },
        _binding("system:coredns", "system:coredns", CLIENTS["coredns"]),
        _binding("apiserver-kubelet", "system:kubelet-api-admin", "kube-apiserver-kubelet-client"),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {"clusterIP": str(DNS_SERVICE), "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns-node",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [str(link.node)], "conditions": {"ready": True}}],
        },
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def further_node(layout: Layout) -> Mapping[str, Any]:
    """The Node object of a node that joins; the node's kubelet finds it and fills it in.

    It is made before the kubelet starts, so that Kubernetes gives the node those pod addresses to
    which the routes over the links lead.
    """
    pods = str(pods_of(layout.number))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": layout.node_name},
        "spec": {"podCIDR": pods, "podCIDRs": [pods]},
    }


def image_mirror(layout: Layout, link: Link) -> Component:
    """The program that gives the first node's images to the other nodes."""
    command = (sys.executable, "-m", "sandbox.image_mirror", str(layout.root), str(link.node))
    return Component(MIRROR, command)


def find_cni_folder() -> Path | None:
    """The folder with the CNI plugins that are needed, or None."""
    for folder in CNI_FOLDERS:
        if all((folder / plugin).exists() for plugin in CNI_PLUGINS):
            return folder
    return None


def host_program(name: str) -> Path:
    """The path of a program of this machine; the preflight has checked that it is installed."""
    found = shutil.which(name, path=SYSTEM_PATH)
    assert found, f"{name} is not installed"
    return Path(found)


def _component(program: Path, *arguments: str) -> Component:
    return Component(program.name, (str(program), *arguments))


def _binding(name: str, role: str, user: str) -> Mapping[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
