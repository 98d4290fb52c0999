"""The programs of the node: their certificates, their configuration files, their command lines.

Kubernetes' own configuration formats; JSON is written where they take YAML.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.kubeconfig import write_kubeconfig
from sandbox.layout import Layout
from sandbox.network import (
    DNS_SERVICE,
    KUBERNETES_SERVICE,
    POD_CIDR,
    SERVICE_CIDR,
    Link,
)
from sandbox.pki import CA, SERVICE_ACCOUNT_KEY, Certificate
from sandbox.processes import Component

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
API_PORT = 6443
COREDNS_READY_PORT = 8181
PROXY_HEALTH_PORT = 10256
CLUSTER_DOMAIN = "cluster.local"
VOLUME_PLUGINS = "/var/lib/kubelet/volume-plugins"
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))  # Debian's, upstream's
CNI_PLUGINS = ("ptp", "host-local", "portmap", "loopback")
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
# client certificate of a program -> the user that Kubernetes' default roles know
CLIENTS = {
    "kube-controller-manager": "system:kube-controller-manager",
    "kube-scheduler": "system:kube-scheduler",
    "kube-proxy": "system:kube-proxy",
    "coredns": "system:coredns",
}


def certificates(layout: Layout, link: Link) -> list[Certificate]:
    """One per program, each with no more rights than the program needs."""
    api_names = ["localhost", layout.node_name]
    service = ["kubernetes", "default", "svc", *CLUSTER_DOMAIN.split(".")]
    api_names += [".".join(service[:length]) for length in (1, 2, 3, len(service))]
    api_addresses = ["127.0.0.1", str(link.node), str(KUBERNETES_SERVICE)]
    return [
        Certificate("admin", "admin", group="system:masters"),
        Certificate("kubelet-client", f"system:node:{layout.node_name}", group="system:nodes"),
        Certificate("apiserver-kubelet-client", "kube-apiserver-kubelet-client"),
        *(Certificate(file, user) for file, user in CLIENTS.items()),
        Certificate(
            "apiserver",
            "kube-apiserver",
            "serverAuth",
            alternative_names=(
                *(f"DNS:{name}" for name in api_names),
                *(f"IP:{address}" for address in api_addresses),
            ),
        ),
        Certificate(
            "kubelet-server",
            f"system:node:{layout.node_name}",
            "serverAuth",
            group="system:nodes",
            alternative_names=(f"DNS:{layout.node_name}", f"IP:{link.node}"),
        ),
    ]


def write_configuration(layout: Layout, link: Link, pause_image: str, cni_folder: Path) -> None:
    """Write every configuration file and kubeconfig below `layout.run`, and the administrator's."""
    server = f"https://{link.node}:{API_PORT}"
    write_kubeconfig(
        layout.kubeconfig, server=server, name=layout.identity, pki=layout.pki, certificate="admin"
    )
    for file in ("kubelet-client", *CLIENTS):
        path = layout.run / f"{file}.kubeconfig"
        write_kubeconfig(path, server=server, name=layout.name, pki=layout.pki, certificate=file)
    (layout.run / "cni.d").mkdir()
    _json(layout.run / "cni.d" / "10-pods.conflist", _cni())
    _json(layout.run / "kubelet.json", _kubelet(layout))
    _json(layout.run / "kube-proxy.json", _kube_proxy(layout, link))
    (layout.run / "resolv.conf").write_text(f"nameserver {link.node}\n")
    (layout.run / "Corefile").write_text(_corefile(layout, link))
    (layout.run / "containerd.toml").write_text(_containerd(layout, pause_image, cni_folder))


def first_components(layout: Layout, link: Link, bin_dir: Path) -> list[Component]:
    """What needs no API server: etcd, the API server itself, containerd."""
    etcd = f"unix://{layout.run}/etcd.sock"  # no TCP: only root reaches the folder
    pki = layout.pki
    return [
        _component(
            bin_dir / "etcd",
            f"--data-dir={layout.run}/etcd",
            f"--listen-client-urls={etcd}",
            "--advertise-client-urls=http://localhost:2379",  # asked for, used by nobody
            f"--listen-peer-urls=unix://{layout.run}/etcd-peer.sock",
            "--unsafe-no-fsync",  # `down` discards it, so nothing has to survive a power cut
        ),
        _component(host_program("containerd"), f"--config={layout.run}/containerd.toml"),
        _component(
            bin_dir / "kube-apiserver",
            f"--etcd-servers={etcd}",
            f"--advertise-address={link.node}",
            f"--secure-port={API_PORT}",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/{CA}.crt",
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
    """What is started when the API server answers."""
    run, pki = layout.run, layout.pki
    return [
        _component(
            bin_dir / "kubelet",
            f"--config={run}/kubelet.json",
            f"--kubeconfig={run}/kubelet-client.kubeconfig",
            f"--hostname-override={layout.node_name}",
            f"--node-ip={link.node}",
        ),
        _component(
            bin_dir / "kube-controller-manager",
            f"--kubeconfig={run}/kube-controller-manager.kubeconfig",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={pki}/{SERVICE_ACCOUNT_KEY}",
            f"--root-ca-file={pki}/{CA}.crt",
            "--kube-api-qps=200",  # it makes 40 service accounts first; the default takes 5 s
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
        _component(
            bin_dir / "kube-proxy",
            f"--config={run}/kube-proxy.json",
            f"--hostname-override={layout.node_name}",
        ),
        _component(bin_dir / "coredns", "-conf", f"{run}/Corefile"),
    ]


def manifests(link: Link) -> Mapping[str, Any]:
    """Objects of a new cluster: what Kubernetes does not bind itself, and the DNS Service.

    CoreDNS runs beside the kubelet and not in a pod, so that no image has to be fetched; its
    EndpointSlice is written by hand.
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


def find_cni_folder() -> Path | None:
    """The folder with the CNI plugins that are needed, or None."""
    for folder in CNI_FOLDERS:
        if all((folder / plugin).exists() for plugin in CNI_PLUGINS):
            return folder
    return None


def host_program(name: str) -> Path:
    """A program of the machine's; the preflight has seen that it is there."""
    found = shutil.which(name, path=SYSTEM_PATH)
    assert found, f"{name} is not installed"
    return Path(found)


def _component(program: Path, *arguments: str) -> Component:
    return Component(program.name, (str(program), *arguments))


def _json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def _binding(name: str, role: str, user: str) -> Mapping[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


def _cni() -> Mapping[str, Any]:
    # ptp and not bridge: all traffic between pods is routed, so Services work without the
    # br_netfilter module and its host-wide settings.
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": str(POD_CIDR)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def _kubelet(layout: Layout) -> Mapping[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{layout.pki}/{CA}.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{layout.pki}/kubelet-server.crt",
        "tlsPrivateKeyFile": f"{layout.pki}/kubelet-server.key",
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "cgroupDriver": "cgroupfs",  # no systemd inside
        "cgroupRoot": layout.cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [str(DNS_SERVICE)],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": f"{layout.run}/resolv.conf",
        "volumePluginDir": VOLUME_PLUGINS,
        "oomScoreAdj": 0,  # the machine's owner does not want the sandbox to be killed last
        # It is the user's machine: no image is removed, and pods are evicted only when it is full.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "imagefs.available": "1%",
            "nodefs.available": "1%",
            "memory.available": "100Mi",
        },
    }


def _kube_proxy(layout: Layout, link: Link) -> Mapping[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{layout.run}/kube-proxy.kubeconfig"},
        "mode": "iptables",
        "clusterCIDR": str(POD_CIDR),
        "bindAddress": str(link.node),
        "healthzBindAddress": f"{link.node}:{PROXY_HEALTH_PORT}",
        "metricsBindAddress": "127.0.0.1:10249",
        "iptables": {"localhostNodePorts": False},
        "oomScoreAdj": 0,
        # Zero leaves the kernel's values: they are the whole machine's.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def _corefile(layout: Layout, link: Link) -> str:
    # ttl 1: the address of a pod that came back is seen at once.
    return f"""\
.:53 {{
    bind {link.node}
    errors
    ready {link.node}:{COREDNS_READY_PORT}
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig {layout.run}/coredns.kubeconfig {layout.name}
        pods insecure
        ttl 1
    }}
}}
"""


def _containerd(layout: Layout, pause_image: str, cni_folder: Path) -> str:
    # restrict_oom_score_adj: CAP_SYS_RESOURCE may be missing (containers, micro-VMs).
    # disable_apparmor: its profile would be loaded for the whole machine and stay there.
    return f"""\
version = 2
root = "{layout.containerd_store}"
state = "/run/containerd"

[grpc]
address = "{layout.containerd_socket}"

[plugins."io.containerd.internal.v1.opt"]
path = "{layout.containerd_store}/opt"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause_image}"
restrict_oom_score_adj = true
disable_apparmor = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni_folder}"
conf_dir = "{layout.run}/cni.d"
"""
