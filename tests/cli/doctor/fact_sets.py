"""The facts of a host and a cluster without a fault, and for each check the facts of one fault."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from cli.facts import Facts, parse_facts
from infra.node.expectations import Expectations

Changes: TypeAlias = dict[str, str | list[str] | None]
HOST = """\
os=opensuse-leap
os_like=suse opensuse
os_version=15.6
kernel=5.14.21-150500.55.88-default
architecture=x86_64
uid=0
systemd=yes
time=1790000000
clock_skew=0
mount_nfs=yes
MemTotal_kib=65536000
SwapTotal_kib=0
cgroup=v2
cgroup_controllers=cpuset cpu io memory hugetlb pids rdma misc
disk.data=/var/lib/disttrain|xfs|500000000|400000000|10000000|9000000|rw
disk.containerd=/var/lib/rancher/k3s|xfs|500000000|400000000|10000000|9000000|rw
disk.tmp=/var/tmp|xfs|500000000|400000000|10000000|9000000|rw
disk.programs=/usr/local/bin|xfs|50000000|40000000|10000000|9000000|rw
disk.settings=/etc/rancher|xfs|50000000|40000000|10000000|9000000|rw
shm_kib=32768000
data_root=folder
port.6443=taken k3s-server
port.10250=taken k3s-server
firewalld=inactive
nm_cloud_setup=disabled
ufw=inactive
selinux=off
selinux_k3s=no
apparmor=on
apparmor_parser=yes
module.br_netfilter=loaded
module.overlay=loaded
ip_forward=1
ip6_forward=0
node_ip=10.1.2.3
route=default eth0
route=10.1.2.0/24 eth0
route=10.42.0.0/24 cni0
address=127.0.0.1
address=10.1.2.3
gpu_pci=0000:17:00.0 0x2236
gpu_pci=0000:65:00.0 0x2236
gpu_pci=0000:ca:00.0 0x2236
driver=550.144.03
nouveau=absent
container_runtime=
nvidia_smi=0
gpu=NVIDIA A10, [N/A]
gpu=NVIDIA A10, [N/A]
gpu=NVIDIA A10, [N/A]
k3s_binary=yes
k3s_unit=yes
k3s_data=yes
k3s_ours=yes
k3s_active=active
kubelet_mounts=40
containerd=/run/k3s/containerd/containerd.sock
containerd_pods=0
clock_synchronised=yes
dns.github.com=found
name_servers=127.0.0.53
name_servers=10.1.2.1 fd00::1
via.direct=0|000|200
via.http=0|000|200
via.https=0|200|200
k3s_env.NO_PROXY=10.1.2.3,10.42.0.0/16,10.43.0.0/16,.svc,.cluster.local,127.0.0.1,localhost
k3s_env.HTTPS_PROXY=http://proxy.example:3128
image=present
image_builder=buildah
ssh_agent=answers
api_port=reached
host_done=yes
"""
CLUSTER = """\
kubeconfig=readable
kubeconfig_mode=600
kubeconfig_insecure=no
kubeconfig_ca=yes
client_certificate_until=Mar  1 09:00:00 2027 GMT
api=ok
node=gpu01|MemoryPressure:False DiskPressure:False Ready:True |||3|3|1|single|v1.34.2+k3s1
namespace=disttrain|Active|
namespace=gpu-operator|Active|
volume=disttrain-pv|Bound|disttrain/disttrain-pvc
claim=disttrain/disttrain-pvc|Bound
release=gpu-operator/gpu-operator|superseded|1
release=gpu-operator/gpu-operator|deployed|2
pod=disttrain/train-singlepod-x|Running|True|||
pod=gpu-operator/gpu-operator-y|Running|True|||
pod=gpu-operator/nvidia-cuda-validator-z|Succeeded|False|||
pod=kube-system/coredns-w|Running|True|||kube-dns
deployment=kueue-system/kueue|1|app.kubernetes.io/name=kueue,control-plane=controller-manager,
deployment=kueue-system/kueueviz|||
cluster_policy=ready
cluster_done=yes
"""
NO_PROXY = "10.1.2.3,10.42.0.0/16,10.43.0.0/16,.svc,.cluster.local,127.0.0.1,localhost"
EXPECT = Expectations(
    k3s_version="v1.34.2+k3s1",
    gpus=3,
    ranks=3,
    api_host="gpu01",
    node_address="10.1.2.3",
    no_proxy=NO_PROXY,
    http_proxy="http://me:hunter2@proxy.example:3128",
    https_proxy="http://me:hunter2@proxy.example:3128",
    image="localhost/disttrain/trainer:0123",
    image_builder="auto",
)
NO_PROXY_AT_ALL = {"http_proxy": "", "https_proxy": "", "no_proxy": ""}
BARE = {  # a host before the first `up`
    "k3s_binary": "no",
    "k3s_unit": "no",
    "k3s_data": "no",
    "k3s_ours": "no",
    "k3s_active": "inactive",
    "ip_forward": "0",  # k3s turns it on
    "port.6443": "free",
    "port.10250": "free",
    "kubelet_mounts": "0",
    "k3s_env.NO_PROXY": None,
    "k3s_env.HTTPS_PROXY": None,
    "image": None,
}


@dataclass(frozen=True)
class Seeded:
    """One fault.

    Args:
        words: words in the finding that the doctor must report.
        facts: the facts that differ; None: the fact is not reported.
        expect: the expectations that differ.
        severity: the severity of the finding.
        bare: whether the host is one before the first `up`, without a cluster.
    """

    words: str
    facts: dict[str, str | list[str] | None] = field(
        default_factory=dict[str, str | list[str] | None]
    )
    expect: Mapping[str, object] = field(default_factory=dict[str, object])
    severity: str = "error"
    bare: bool = False


def facts_with(changes: Changes, *, bare: bool = False) -> Facts:
    """Return the facts of the host without a fault, with these changes.

    With `bare` it is the host before its first `up`, without a cluster.
    """
    facts = parse_facts((HOST if bare else HOST + CLUSTER).splitlines())
    for name, value in {**(BARE if bare else {}), **changes}.items():
        if value is None:
            facts.values.pop(name, None)
        else:
            facts.values[name] = value if isinstance(value, list) else [value]
    return facts


def expect_with(changes: Mapping[str, object]) -> Expectations:
    """Return the expectations for the host without a fault, with these changes."""
    return replace(EXPECT, **changes)  # pyright: ignore[reportArgumentType]


NODE = "gpu01|{conditions}|{cordoned}|{taints}|{offered}|{count}|{replicas}|{strategy}|v1.34.2+k3s1"
GOOD_NODE = {
    "conditions": "MemoryPressure:False DiskPressure:False Ready:True ",
    "cordoned": "",
    "taints": "",
    "offered": "3",
    "count": "3",
    "replicas": "1",
    "strategy": "single",
}


def node(**changes: str) -> Changes:
    """Return the fact of the one node, with these changes."""
    return {"node": NODE.format(**{**GOOD_NODE, **changes})}


def disk(name: str, path: str, **changes: str) -> Changes:
    """Return the fact `disk.NAME`; `changes` may have fs, free (in KiB), inodes and mode."""
    parts = {"fs": "xfs", "free": "400000000", "inodes": "9000000", "mode": "rw", **changes}
    row = (
        path,
        parts["fs"],
        "500000000",
        parts["free"],
        "10000000",
        parts["inodes"],
        parts["mode"],
    )
    return {f"disk.{name}": "|".join(row)}


FAULTS: dict[str, Seeded] = {
    "os-family": Seeded("gentoo", {"os": "gentoo", "os_like": ""}, severity="warning"),
    "kernel": Seeded("kernel 4.4.0-31 is older", {"kernel": "4.4.0-31"}),
    "architecture": Seeded("ppc64le", {"architecture": "ppc64le"}),
    "root-access": Seeded(
        "incorrect password attempt",
        {"uid": "1000", "root_problem": "1 incorrect password attempt"},
    ),
    "init-system": Seeded("systemd is not", {"systemd": "no"}),
    "cgroup": Seeded("no controller memory", {"cgroup_controllers": "cpuset cpu io pids"}),
    "memory": Seeded("3.8 GiB of memory", {"MemTotal_kib": "4000000"}, severity="warning"),
    "shared-memory": Seeded("may take 40.0 of", expect={"shm_kib": 40 * 1024 * 1024}),
    "swap": Seeded("2.0 GiB of swap", {"SwapTotal_kib": "2097152"}, severity="warning"),
    "disk-data": Seeded("0.5 GiB free", disk("data", "/var/lib/disttrain", free="524288")),
    "disk-containerd": Seeded(
        "20.0 GiB free, 30 GiB wanted",
        disk("containerd", "/var/lib/rancher/k3s", free="20971520"),
        severity="warning",
    ),
    "disk-tmp": Seeded("0.0 GiB free", disk("tmp", "/var/tmp", free="0")),
    "disk-system": Seeded("100 MiB free", disk("programs", "/usr/local/bin", free="102400")),
    "inodes": Seeded("100 inodes left", disk("data", "/var/lib/disttrain", inodes="100")),
    "data-root": Seeded("is a link", {"data_root": "link"}),
    "port-6443": Seeded("taken by haproxy", {"port.6443": "taken haproxy"}, bare=True),
    "port-10250": Seeded("taken by kubelet", {"port.10250": "taken kubelet"}, bare=True),
    "firewall": Seeded(
        "does not trust 10.43.0.0/16",
        {"firewalld": "active", "firewalld_trusted": "10.42.0.0/16"},
        severity="warning",
    ),
    "nm-cloud-setup": Seeded(
        "nm-cloud-setup of NetworkManager is enabled",
        {"nm_cloud_setup": "enabled"},
        severity="warning",
    ),
    "selinux": Seeded("SELinux is enforcing", {"selinux": "enforcing"}, severity="warning"),
    "apparmor": Seeded("apparmor_parser is missing", {"apparmor_parser": "no"}),
    "module-br_netfilter": Seeded("module br_netfilter is", {"module.br_netfilter": "missing"}),
    "module-overlay": Seeded("module overlay is", {"module.overlay": "missing"}),
    "ip-forward": Seeded("ip_forward is 0", {"ip_forward": "0"}, severity="warning"),
    "default-route": Seeded("no default route", {"route": ["10.1.2.0/24 eth0"]}),
    "cidr-overlap": Seeded("10.43.5.0/24", {"route": ["default eth0", "10.43.5.0/24 tun0"]}),
    "node-address": Seeded(
        "10.1.2.3 is not an address", {"address": ["10.9.9.9"]}, severity="warning"
    ),
    "node-interface": Seeded(
        "this host has no network interface eth9; it has eth0 lo",
        {"interface": "absent", "interfaces": "eth0 lo"},
        {"node_interface": "eth9"},
    ),
    "address-family": Seeded(
        "takes fd00::4 for the node's own address, and podCidr 10.42.0.0/16 is a network of IPv4",
        {"node_ip": "fd00::4"},
        {"no_proxy": f"{NO_PROXY},fd00::4"},
    ),
    "nfs-client": Seeded("mount.nfs is missing", {"mount_nfs": "no"}, {"nfs": "other"}),
    "clock": Seeded("the clock is 400 s apart", {"clock_skew": "-400"}),
    "dns": Seeded(
        "cannot resolve github.com",
        {"dns.github.com": "not found", "via.direct": "28|000|000"},  # no name server answers
        NO_PROXY_AT_ALL,
        bare=True,
    ),
    "pod-dns": Seeded(
        "cannot use the host's name servers (127.0.0.1, 169.254.169.254, 10.1.2.1)",
        {"name_servers": ["127.0.0.1", "169.254.169.254 10.1.2.1"]},
        severity="warning",
    ),
    "ssh-agent": Seeded(
        "no agent answers (/tmp/ssh-x/agent.7: Connection refused)",
        {"ssh_agent": "/tmp/ssh-x/agent.7: Connection refused"},
    ),
    "api-port": Seeded(
        "this machine does not reach port 6443 of gpu01 (no answer in 3 s)",
        {"api_port": "no answer in 3 s"},
        bare=True,
    ),
    "proxy-reachable": Seeded("nobody listens there", {"via.https": "7|000|000"}),
    "proxy-password": Seeded("refuses the given one (407)", {"via.https": "56|407|000"}),
    "proxy-certificate": Seeded("nobody here trusts", {"via.https": "60|200|000"}),
    "no-proxy": Seeded(
        "lacks 10.43.0.0/16", expect={"no_proxy": NO_PROXY.replace("10.43.0.0/16,", "")}
    ),
    "proxy-of-k3s": Seeded(
        "k3s runs with the proxy http://proxy.example:3128", {}, NO_PROXY_AT_ALL, "warning"
    ),
    "way-out": Seeded(
        "no answer in time", {"via.direct": "28|000|000"}, NO_PROXY_AT_ALL, bare=True
    ),
    "gpu-device": Seeded("2 NVIDIA GPUs on the PCI bus; 3", {"gpu_pci": ["a 0x1", "b 0x1"]}),
    "gpu-driver": Seeded("not loaded", {"driver": ""}),
    "gpu-driver-version": Seeded("older than 525.60", {"driver": "470.82.01"}, {"cuda": "12.6"}),
    "gpu-generation": Seeded(
        "torch built for CUDA 11.8 has no code",
        {"gpu_pci": ["a 0x2236", "b 0x2236", "c 0x2901"], "driver": "570.86.15"},
    ),
    "image-builder": Seeded(
        "docker, podman or buildah does not work on the machine that runs Pulumi",
        {"image_builder": "none"},
        bare=True,
    ),
    "nouveau": Seeded("nouveau is loaded", {"nouveau": "loaded"}),
    "nvidia-smi": Seeded("infoROM", {"nvidia_smi": "14"}),
    "gpu-errors": Seeded("Xid 79 3 times: the GPU does not answer", {"xid": "PCI:0000:17:00|79|3"}),
    "gpu-mig": Seeded(
        "MIG mode is on for 1 of 3", {"gpu": ["A, Enabled", "A, Disabled", "A, Disabled"]}
    ),
    "container-toolkit": Seeded("not on PATH", expect={"operator_toolkit": False}),
    "operator-system": Seeded("no driver container for opensuse", expect={"operator_driver": True}),
    "k3s-complete": Seeded(
        "binary there, unit missing", {"k3s_binary": "yes", "k3s_unit": "no"}, bare=True
    ),
    "k3s-owner": Seeded("but not by disttrain", {"k3s_ours": "no"}, severity="warning"),
    "k3s-running": Seeded(
        "the service k3s is failed", {"k3s_active": "failed"}, severity="warning"
    ),
    "k3s-leftovers": Seeded("12 mounts", {"kubelet_mounts": "12"}, severity="warning", bare=True),
    "other-kubernetes": Seeded("process kubelet", {"kubernetes": ["process kubelet (77)"]}),
    "other-containerd": Seeded("runs 9 containers", {"containerd_pods": "9"}, severity="warning"),
    "kubeconfig": Seeded("has mode 644", {"kubeconfig_mode": "644"}, severity="warning"),
    "kubeconfig-ca": Seeded("insecure-skip-tls-verify", {"kubeconfig_insecure": "yes"}),
    "client-certificate": Seeded(
        "ends in 10 days",
        {"client_certificate_until": "Oct  1 12:00:00 2026 GMT"},
        severity="warning",
    ),
    "api-server": Seeded(
        "connection refused", {"api": "dial tcp 10.1.2.3:6443: connection refused"}
    ),
    "node-ready": Seeded("1 of 1 nodes are not Ready: gpu01", node(conditions="Ready:Unknown ")),
    "node-pressure": Seeded("has DiskPressure", node(conditions="DiskPressure:True Ready:True ")),
    "node-schedulable": Seeded("is cordoned", node(cordoned="cordoned")),
    "gpus-allocatable": Seeded(
        "a pod asks for 3 of nvidia.com/gpu, and no node offers that many: gpu01 offers 0",
        node(offered=""),
    ),
    "gpu-sharing": Seeded(
        "has 1 GPUs, 4 time slices each; 3 ranks", node(offered="4", count="1", replicas="4")
    ),
    "operator-pods": Seeded(
        "toolkit-q: Init:CrashLoopBackOff",
        {"pod": ["gpu-operator/toolkit-q|Pending|False|Init:CrashLoopBackOff ||"]},
    ),
    "cluster-policy": Seeded("is notReady", {"cluster_policy": "notReady"}, severity="warning"),
    "stuck-namespace": Seeded(
        "finalizers remaining", {"namespace": "disttrain|Terminating|some finalizers remaining "}
    ),
    "pending-release": Seeded(
        "gpu-operator/gpu-operator is pending-install",
        {"release": "gpu-operator/gpu-operator|pending-install|1"},
    ),
    "volume-bound": Seeded(
        "is Lost, its volume is Released",
        {
            "claim": "disttrain/disttrain-pvc|Lost",
            "volume": "disttrain-pv|Released|disttrain/disttrain-pvc",
        },
    ),
    "image-present": Seeded("trainer:0123 is not in", {"image": "absent"}),
    "waiting-pods": Seeded(
        "train-0 waits for its image: ImagePullBackOff",
        {
            "pod": [
                "disttrain/train-0|Pending|False|ImagePullBackOff ||",
                "gpu-operator/gpu-operator-y|Running|True|||",
            ]
        },
    ),
    "cluster-dns": Seeded(
        "no DNS pod is ready",
        {
            "pod": [
                "kube-system/coredns-w|Running|False|CrashLoopBackOff ||kube-dns",
                "gpu-operator/gpu-operator-y|Running|True|||",
            ]
        },
    ),
    "controllers": Seeded(
        "Kueue's controller is down: Deployment kueue in namespace kueue-system has no available",
        {
            "deployment": [
                "kueue-system/kueue||app.kubernetes.io/name=kueue,control-plane=controller-manager,",
                "volcano-system/volcano-scheduler|1|app=volcano-scheduler,",
                "team/web||app=web,",
            ]
        },
        severity="warning",
    ),
}
