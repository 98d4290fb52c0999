"""Writes the configuration files and kubeconfigs of the node's programs.

The files have Kubernetes' own formats. They are written as JSON, which is valid YAML.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.components import (
    API_PORT,
    CLIENTS,
    CLUSTER_DOMAIN,
    COREDNS_READY_PORT,
    MIRROR_PORT,
    PROXY_HEALTH_PORT,
    VOLUME_PLUGINS,
)
from sandbox.kubeconfig import write_kubeconfig
from sandbox.layout import Layout
from sandbox.network import DNS_SERVICE, Link, pods_of
from sandbox.pki import CA

PODS_NETWORK = "10-pods.conflist"  # in Layout.cni_settings


def write_configuration(layout: Layout, link: Link, pause_image: str, cni_folder: Path) -> None:
    """Write the first node's configuration files and kubeconfigs, the administrator's included."""
    write_kubeconfig(
        layout.kubeconfig,
        server=_server(link),
        name=layout.identity,
        pki=layout.pki,
        certificate="admin",
    )
    _write_clients(layout, link, *(file for file in CLIENTS if file != "kube-proxy"))
    (layout.run / "Corefile").write_text(_corefile(layout, link))
    write_node_configuration(layout, link, link, pause_image, cni_folder)


def write_node_configuration(
    layout: Layout, link: Link, first: Link, pause_image: str, cni_folder: Path
) -> None:
    """Write the files that a node's own programs read; `first` is the link of the first node."""
    _write_clients(layout, first, "kubelet-client", "kube-proxy")
    _link_plugins(layout, cni_folder)
    layout.cni_settings.mkdir()
    _json(layout.cni_settings / PODS_NETWORK, _cni(layout))
    _json(layout.run / "kubelet.json", _kubelet(layout))
    _json(layout.run / "kube-proxy.json", _kube_proxy(layout, link))
    (layout.run / "resolv.conf").write_text(f"nameserver {first.node}\n")
    (layout.run / "containerd.toml").write_text(_containerd(layout, pause_image))
    if layout.number > 1:
        _pull_from(layout, first)


def _write_clients(layout: Layout, first: Link, *files: str) -> None:
    for file in files:
        path = layout.run / f"{file}.kubeconfig"
        write_kubeconfig(
            path, server=_server(first), name=layout.name, pki=layout.pki, certificate=file
        )


def _server(first: Link) -> str:
    return f"https://{first.node}:{API_PORT}"


def _json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def _link_plugins(layout: Layout, cni_folder: Path) -> None:
    """Give the node a folder of its own, to which a plugin can be added for this node alone."""
    layout.cni_plugins.mkdir()
    for plugin in cni_folder.iterdir():
        (layout.cni_plugins / plugin.name).symlink_to(plugin)


def _cni(layout: Layout) -> Mapping[str, Any]:
    # With the plugin ptp, unlike bridge, all traffic between pods is routed. So Services work
    # without the module br_netfilter, whose settings apply to the whole machine.
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": str(pods_of(layout.number))}]],
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
        "cgroupDriver": "cgroupfs",  # there is no systemd in the cluster's namespaces
        "cgroupRoot": layout.cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [str(DNS_SERVICE)],
        "clusterDomain": CLUSTER_DOMAIN,
        "resolvConf": f"{layout.run}/resolv.conf",
        "volumePluginDir": VOLUME_PLUGINS,
        "oomScoreAdj": 0,  # the kubelet's default would make the sandbox the last to be killed
        # The disk and memory are shared with the user, so images are never removed, and pods are
        # evicted only when nearly nothing is left.
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
        "clusterCIDR": str(pods_of(layout.number)),
        "bindAddress": str(link.node),
        "healthzBindAddress": f"{link.node}:{PROXY_HEALTH_PORT}",
        "metricsBindAddress": "127.0.0.1:10249",
        "iptables": {"localhostNodePorts": False},
        "oomScoreAdj": 0,
        # Zero leaves the kernel's values as they are, because they apply to the whole machine.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def _corefile(layout: Layout, link: Link) -> str:
    # CoreDNS caches answers as in k3s, so pods see a pod's new address some seconds late.
    return f"""\
.:53 {{
    bind {link.node}
    errors
    ready {link.node}:{COREDNS_READY_PORT}
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig {layout.run}/coredns.kubeconfig {layout.name}
        pods insecure
    }}
    cache 30
}}
"""


def _containerd(layout: Layout, pause_image: str) -> str:
    # restrict_oom_score_adj is set because CAP_SYS_RESOURCE may be missing, as in containers.
    # disable_apparmor is set because the profile would be loaded for the whole machine, where it
    # would stay after `down`.
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
bin_dir = "{layout.cni_plugins}"
conf_dir = "{layout.cni_settings}"

[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{layout.registries}"
"""


def _pull_from(layout: Layout, first: Link) -> None:
    """Let this node pull the images that it lacks from the first node, whatever their registry.

    The folder `_default` is for all registries. A test may add a folder for one registry, which
    containerd prefers.
    """
    default = layout.registries / "_default"
    default.mkdir(parents=True)
    (default / "hosts.toml").write_text(
        f'[host."http://{first.node}:{MIRROR_PORT}"]\ncapabilities = ["pull", "resolve"]\n'
    )
