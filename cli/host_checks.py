"""Checks of the host itself: system, kernel, memory, disks, guards, network, clock."""

import ipaddress

from cli.check import Check, Fault, asked_for, error, version_tuple, warning
from cli.facts import Facts, NotSeenError
from infra.expectations import GIB, Expectations

FAMILIES = {  # ID or ID_LIKE of os-release -> family
    "debian": "Debian",
    "ubuntu": "Debian",
    "suse": "SUSE",
    "opensuse": "SUSE",
    "sles": "SUSE",
    "rhel": "RHEL",
    "fedora": "RHEL",
    "centos": "RHEL",
    "rocky": "RHEL",
    "almalinux": "RHEL",
}
CONTROLLERS: tuple[str, ...] = ("cpu", "cpuset", "memory", "pids")
OLDEST_KERNEL = (4, 18)  # of RHEL 8, the oldest system of NVIDIA's and k3s' lists
MEMORY_GIB, LEAST_MEMORY_GIB = 8, 2
IMAGE_GIB, LEAST_IMAGE_GIB = 30, 15  # a CUDA image of 6 GB, packed and unpacked, and k3s' own
DATA_GIB, LEAST_DATA_GIB = 10, 1
TMP_GIB = 1
PROGRAMS_MIB = 512  # as k3s-install.sh wants them: the binary, the new beside the old
SETTINGS_MIB = 1
LEAST_INODES = 50_000
CLOCK_SECONDS, LEAST_CLOCK_SECONDS = 5, 60  # certificates are refused when clocks are apart


def os_family(facts: Facts, _: Expectations) -> Fault | str:
    """The families that the scripts were written for."""
    name = facts.one("os")
    like = f"{name} {facts.get('os_like')}".replace("-", " ").split()
    family = next((FAMILIES[word] for word in like if word in FAMILIES), None)
    shown = f"{name} {facts.get('os_version')}".strip()
    if family is None:
        return warning(
            f"{shown} is of no family that was tried",
            "use Debian, Ubuntu, openSUSE/SLES or RHEL/Rocky/Alma, or go on and report what breaks",
        )
    return f"{shown} (family {family})"


def kernel(facts: Facts, _: Expectations) -> Fault | str:
    """Old kernels lack what containerd's overlayfs and cgroups need."""
    release = facts.one("kernel")
    if version_tuple(release)[:2] < OLDEST_KERNEL:
        return error(f"kernel {release} is older than 4.18", "update the system and reboot")
    return release


def architecture(facts: Facts, _: Expectations) -> Fault | str:
    """What k3s, torch and NVIDIA's images are built for."""
    name = facts.one("architecture")
    if name not in ("x86_64", "aarch64"):
        return error(f"{name}: no images for it", "use a machine with x86_64 or aarch64")
    return name


def root_access(facts: Facts, expect: Expectations) -> Fault | str:
    """Installing needs root; so do some of these checks."""
    if facts.get("root_problem"):
        return (error if expect.provision else warning)(
            f"not root, and sudo says: {facts.get('root_problem')}",
            "pulumi config set --secret sudoPassword, or allow this user sudo without a password",
        )
    return "root" if facts.number("uid") == 0 else "not root, and not needed"


def init_system(facts: Facts, expect: Expectations) -> Fault | str:
    """K3s is run by systemd."""
    _provision_only(expect)
    if facts.one("systemd") != "yes":
        return error(
            "systemd is not this host's init (no /run/systemd/system)",
            "use a host with systemd, or cluster: existing with a cluster you have",
        )
    return "systemd"


def cgroup(facts: Facts, expect: Expectations) -> Fault | str:
    """Controllers the kubelet insists on; Kubernetes 1.35 refuses version 1."""
    version = facts.one("cgroup")
    there = facts.one("cgroup_controllers").split()
    missing = [name for name in CONTROLLERS if name not in there]
    if missing:
        names = ", ".join(missing)
        return error(
            f"cgroup {version} has no controller {names}",
            "add cgroup_enable=memory cgroup_memory=1 to the kernel's command line, and reboot",
        )
    if version == "v1" and version_tuple(expect.k3s_version) >= (1, 35):
        return error(
            f"cgroup v1, which Kubernetes {expect.k3s_version} refuses",
            "boot with systemd.unified_cgroup_hierarchy=1, or take k3sVersion v1.34.x",
        )
    return version


def memory(facts: Facts, _: Expectations) -> Fault | str:
    """For k3s, the operator and the trainer's processes."""
    gib = facts.number("MemTotal_kib") / GIB
    if gib < MEMORY_GIB * 0.9:  # firmware keeps a part
        level = error if gib < LEAST_MEMORY_GIB else warning
        return level(f"{gib:.1f} GiB of memory", f"use a machine with {MEMORY_GIB} GiB or more")
    return f"{gib:.1f} GiB"


def shared_memory(facts: Facts, expect: Expectations) -> Fault | str:
    """The pods' /dev/shm is memory; more than half of it leaves too little to train with."""
    total, wanted = facts.number("MemTotal_kib"), expect.shm_kib
    if wanted * 2 > total:
        return error(
            f"/dev/shm of all pods: {wanted / GIB:.1f} GiB of {total / GIB:.1f} GiB of memory",
            "pulumi config set shmSize 1Gi (or less)",
        )
    return f"{wanted / GIB:.1f} GiB for all pods"


def swap(facts: Facts, expect: Expectations) -> Fault | str:
    """Training that is swapped is slow beyond use; many kubelets refuse to start."""
    _provision_only(expect)
    kib = facts.number("SwapTotal_kib")
    if kib:
        return warning(f"{kib / GIB:.1f} GiB of swap is on", "swapoff -a, and remove it from fstab")
    return "off"


def disk_data(facts: Facts, expect: Expectations) -> Fault | str:
    """Room for data sets and checkpoints."""
    return _room(facts, "data", DATA_GIB, LEAST_DATA_GIB, "free some space, or set dataRoot")


def disk_containerd(facts: Facts, _: Expectations) -> Fault | str:
    """Room for the trainer's image."""
    fix = "free some space, or mount a larger disk at /var/lib/rancher before k3s is installed"
    return _room(facts, "containerd", IMAGE_GIB, LEAST_IMAGE_GIB, fix)


def disk_tmp(facts: Facts, _: Expectations) -> Fault | str:
    """Downloads land there first."""
    return _room(facts, "tmp", TMP_GIB, 0.2, "free some space in /tmp")


def disk_system(facts: Facts, expect: Expectations) -> Fault | str:
    """Room and rights to write where k3s' binary and its settings go."""
    _provision_only(expect)
    for name, least_mib in (("programs", PROGRAMS_MIB), ("settings", SETTINGS_MIB)):
        path, _fs, _size, free, *_, mode = _disk(facts, name)
        if mode == "ro":
            return error(f"{path} lies on a read-only mount", "remount it rw")
        if free.isdigit() and int(free) < least_mib * 1024:
            return error(
                f"{path}: {int(free) // 1024} MiB free, {least_mib} MiB wanted",
                "free some space there",
            )
    return "room for k3s' binary and settings"


def inodes(facts: Facts, _: Expectations) -> Fault | str:
    """A disk can be full of files with gigabytes left."""
    few: list[str] = []
    for name in ("data", "containerd", "tmp"):
        path, _fs, _size, _free, total, free, _mode = _disk(facts, name)
        if total.isdigit() and int(total) and int(free) < LEAST_INODES:  # btrfs counts none
            few.append(f"{path}: {free} inodes left")
    if few:
        return error("; ".join(few), "remove small files there (df -i shows the count)")
    return "enough"


def data_root(facts: Facts, expect: Expectations) -> Fault | str:
    """A folder, on a disk that stays."""
    kind, (_path, filesystem, *_, mode) = facts.one("data_root"), _disk(facts, "data")
    if kind in ("file", "link"):
        return error(f"{expect.data_root} is a {kind}", "set dataRoot to a folder")
    if mode == "ro":
        return error(
            f"{expect.data_root} lies on a read-only mount", "remount it rw, or set dataRoot"
        )
    if filesystem in ("tmpfs", "ramfs"):
        return warning(
            f"{expect.data_root} lies in memory ({filesystem}): gone at the next boot",
            "set dataRoot to a folder on a disk",
        )
    return f"{kind}, {filesystem}"


def port(number: int) -> Check:
    """Nobody else listens where k3s will."""

    def judge(facts: Facts, expect: Expectations) -> Fault | str:
        _provision_only(expect)
        state, _, who = facts.one(f"port.{number}").partition(" ")
        if state == "taken" and not who.startswith("k3s") and facts.get("k3s_active") != "active":
            return error(
                f"port {number} is taken by {who}",
                f"stop it (ss -ltnp 'sport = :{number}' shows it): k3s needs the port",
            )
        return f"{state} {who}".strip()

    return Check(f"port-{number}", judge)


def firewall(facts: Facts, expect: Expectations) -> Fault | str:
    """An active firewall drops what pods send to each other and to the API server."""
    _provision_only(expect)
    nets = (expect.pod_cidr, expect.service_cidr)
    if facts.one("firewalld") == "active":
        missing = [net for net in nets if net not in facts.get("firewalld_trusted")]
        if missing:
            sources = " ".join(f"--add-source={net}" for net in missing)
            return warning(
                f"firewalld is active and does not trust {', '.join(missing)}",
                f"firewall-cmd --permanent --zone=trusted {sources} && firewall-cmd --reload",
            )
    if facts.one("ufw") == "active":
        missing = [net for net in nets if net not in facts.get("ufw_rules")]
        if missing:
            rules = " && ".join(f"ufw allow from {net} to any" for net in missing)
            return warning(f"ufw is active without a rule for {', '.join(missing)}", rules)
    return "none in the way"


def selinux(facts: Facts, expect: Expectations) -> Fault | str:
    """Enforcing needs k3s' policy."""
    _provision_only(expect)
    if facts.one("selinux") == "enforcing" and facts.one("selinux_k3s") != "yes":
        return warning(
            "SELinux is enforcing and k3s' policy is not installed",
            "install the package k3s-selinux (rpm.rancher.io), then run pulumi up",
        )
    return facts.one("selinux")


def apparmor(facts: Facts, expect: Expectations) -> Fault | str:
    """Containerd loads profiles with apparmor_parser, and fails every pod without it."""
    _provision_only(expect)
    if facts.one("apparmor") == "on" and facts.one("apparmor_parser") != "yes":
        return error(
            "AppArmor is on and apparmor_parser is missing", "install the package apparmor"
        )
    return facts.one("apparmor")


def module(name: str) -> Check:
    """A part of the kernel that pods need."""

    def judge(facts: Facts, _: Expectations) -> Fault | str:
        state = facts.one(f"module.{name}")
        if state == "missing":
            return error(
                f"kernel module {name} is neither loaded nor to be found",
                "install the kernel's modules (linux-modules-extra, kernel-modules), reboot",
            )
        return state

    return Check(f"module-{name}", judge)


def ip_forward(facts: Facts, expect: Expectations) -> Fault | str:
    """Without it no packet leaves a pod."""
    _provision_only(expect)
    if facts.one("ip_forward") != "1":
        if facts.get("k3s_active") != "active":
            return "off; k3s turns it on as it starts"
        return warning(
            "net.ipv4.ip_forward is 0 though k3s turned it on: something turns it off again",
            "echo net.ipv4.ip_forward=1 >/etc/sysctl.d/99-k3s.conf && sysctl --system",
        )
    return "on"


def default_route(facts: Facts, expect: Expectations) -> Fault | str:
    """K3s finds its own address by it, also without internet."""
    _provision_only(expect)
    if not any(route.startswith("default ") for route in facts.all("route")):
        return error(
            "no default route",
            "ip link add dummy0 type dummy && ip addr add 203.0.113.254/31 dev dummy0 && "
            "ip link set dummy0 up && ip route add default via 203.0.113.255 dev dummy0",
        )
    return "there"


def cidr_overlap(facts: Facts, expect: Expectations) -> Fault | str:
    """A route of the host inside the cluster's networks takes packets away from it."""
    _provision_only(expect)
    ours = [ipaddress.ip_network(net) for net in (expect.pod_cidr, expect.service_cidr)]
    for route in facts.all("route"):
        target, _, device = route.partition(" ")
        if target == "default" or device.startswith(("cni", "flannel", "veth", "kube")):
            continue
        try:
            network = ipaddress.ip_network(target, strict=False)
        except ValueError:
            continue  # blackhole, unreachable
        for own in ours:
            if own.version == network.version and own.overlaps(network):
                return error(
                    f"the host routes {target} to {device}, inside the cluster's {own}",
                    "pulumi config set podCidr/serviceCidr to networks that the host does not use",
                )
    return "no route of the host in it"


def node_address(facts: Facts, expect: Expectations) -> Fault | str:
    """What NO_PROXY and the certificate name must be this host."""
    _provision_only(expect)
    asked_for(expect.node_address, "nodeAddress is not set")
    try:
        wanted = str(ipaddress.ip_address(expect.node_address))
    except ValueError:
        return f"{expect.node_address} is a name"
    if wanted not in facts.all("address"):
        return warning(
            f"{wanted} is no address of this host",
            "pulumi config set nodeAddress to the address that pods see (fine behind NAT)",
        )
    return wanted


def clock(facts: Facts, _: Expectations) -> Fault | str:
    """Certificates of another time are refused. `clock_skew` is measured by who asks."""
    skew = abs(facts.number("clock_skew"))
    fix = "turn time synchronisation on: timedatectl set-ntp true (or chronyd, ntpd)"
    if skew > CLOCK_SECONDS:
        level = error if skew > LEAST_CLOCK_SECONDS else warning
        return level(f"the clock is {skew} s apart from this machine's", fix)
    try:
        synchronised = facts.one("clock_synchronised") != "no"
    except NotSeenError:
        synchronised = True  # no systemd: nothing is known against it
    return f"within {skew} s" if synchronised else warning("the clock is not synchronised", fix)


def dns(facts: Facts, expect: Expectations) -> Fault | str:
    """A host that cannot resolve names pulls no image; behind a proxy the proxy resolves."""
    asked_for(expect.internet and not expect.has_proxy, "no name outside has to be resolved here")
    names = [name.removeprefix("dns.") for name in facts.values if name.startswith("dns.")]
    asked_for(names, "no name outside has to be resolved here")
    failed = [name for name in names if facts.one(f"dns.{name}") != "found"]
    if failed:
        return error(
            f"cannot resolve {', '.join(failed)}",
            "mend /etc/resolv.conf, or set httpProxy/httpsProxy where only a proxy gets out",
        )
    return f"resolves {', '.join(names)}"


def _provision_only(expect: Expectations) -> None:
    asked_for(expect.provision, "the cluster exists already: its own business")


def _disk(facts: Facts, name: str) -> list[str]:
    facts.one(f"disk.{name}")
    return facts.rows(f"disk.{name}", 7)[-1]


def _room(facts: Facts, name: str, wanted: float, least: float, fix: str) -> Fault | str:
    path, _, _, free, *_ = _disk(facts, name)
    if not free.isdigit():
        raise NotSeenError(f"df does not say how much is free at {path}")
    gib = int(free) / GIB
    if gib < wanted:
        return (error if gib < least else warning)(
            f"{path}: {gib:.1f} GiB free, {wanted} GiB wanted", fix
        )
    return f"{path}: {gib:.0f} GiB free"


HOST_CHECKS = (
    Check("os-family", os_family),
    Check("kernel", kernel),
    Check("architecture", architecture),
    Check("root-access", root_access),
    Check("init-system", init_system),
    Check("cgroup", cgroup),
    Check("memory", memory),
    Check("shared-memory", shared_memory),
    Check("swap", swap),
    Check("disk-data", disk_data),
    Check("disk-containerd", disk_containerd),
    Check("disk-tmp", disk_tmp),
    Check("disk-system", disk_system),
    Check("inodes", inodes),
    Check("data-root", data_root),
    port(6443),
    port(10250),
    Check("firewall", firewall),
    Check("selinux", selinux),
    Check("apparmor", apparmor),
    module("br_netfilter"),
    module("overlay"),
    Check("ip-forward", ip_forward),
    Check("default-route", default_route),
    Check("cidr-overlap", cidr_overlap),
    Check("node-address", node_address),
    Check("clock", clock),
    Check("dns", dns),
)
