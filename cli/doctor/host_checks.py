"""Checks of the host's system: distribution, kernel, rights, memory, security modules and clock."""

from cli.check import Check, Fault, error, only_for_own_k3s, skip_unless, version_tuple, warning
from cli.facts import Facts, NotSeenError
from infra.node.expectations import GIB, OTHER, Expectations

FAMILIES = {  # the family for each ID or ID_LIKE in os-release
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
OLDEST_KERNEL = (4, 18)  # the kernel of RHEL 8, the oldest system that NVIDIA and k3s support
MEMORY_GIB, LEAST_MEMORY_GIB = 8, 2
CLOCK_SECONDS, CLOCK_ERROR_SECONDS = 5, 60  # a larger difference is a warning, or an error


def os_family(facts: Facts, _: Expectations) -> Fault | str:
    """The system is of a family that the scripts were written for."""
    name = facts.one("os")
    like = f"{name} {facts.get('os_like')}".replace("-", " ").split()
    family = next((FAMILIES[word] for word in like if word in FAMILIES), None)
    shown = f"{name} {facts.get('os_version')}".strip()
    if family is None:
        return warning(
            f"{shown} is of a family for which the scripts were not written",
            "use Debian, Ubuntu, openSUSE/SLES or RHEL/Rocky/Alma, or go on and report what breaks",
        )
    return f"{shown} (family {family})"


def kernel(facts: Facts, _: Expectations) -> Fault | str:
    """The kernel is new enough for containerd's overlayfs and control groups."""
    release = facts.one("kernel")
    if version_tuple(release)[:2] < OLDEST_KERNEL:
        return error(f"kernel {release} is older than 4.18", "update the system and reboot")
    return release


def architecture(facts: Facts, _: Expectations) -> Fault | str:
    """The processor is one that k3s, torch and NVIDIA's images are built for."""
    name = facts.one("architecture")
    if name not in ("x86_64", "aarch64"):
        return error(
            f"there are no images for the architecture {name}",
            "use a machine with x86_64 or aarch64",
        )
    return name


def root_access(facts: Facts, expect: Expectations) -> Fault | str:
    """The user is root or may become root; the installation and some checks need that."""
    if facts.get("root_problem"):
        return (error if expect.provision else warning)(
            f"the user is not root and cannot become it: {facts.get('root_problem')}",
            "pulumi config set --secret sudoPassword, or allow this user sudo without a password",
        )
    return "root" if facts.number("uid") == 0 else "root is not needed"


def init_system(facts: Facts, expect: Expectations) -> Fault | str:
    """The host is run by systemd, which starts and restarts k3s."""
    only_for_own_k3s(expect)
    if facts.one("systemd") != "yes":
        return error(
            "systemd is not this host's init (no /run/systemd/system)",
            "use a host with systemd, or set cluster: existing to use a cluster that you have",
        )
    return "systemd"


def cgroup(facts: Facts, expect: Expectations) -> Fault | str:
    """The control groups have what the kubelet needs; Kubernetes 1.35 refuses version 1."""
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
    """There is enough memory for k3s, the GPU Operator and the trainer's processes."""
    gib = facts.number("MemTotal_kib") / GIB
    if gib < MEMORY_GIB * 0.9:  # the firmware reserves a part of the memory
        level = error if gib < LEAST_MEMORY_GIB else warning
        return level(f"{gib:.1f} GiB of memory", f"use a machine with {MEMORY_GIB} GiB or more")
    return f"{gib:.1f} GiB"


def shared_memory(facts: Facts, expect: Expectations) -> Fault | str:
    """The pods' /dev/shm, which is memory, takes at most half of the host's memory."""
    total, wanted = facts.number("MemTotal_kib"), expect.shm_kib
    if wanted * 2 > total:
        return error(
            f"/dev/shm of all pods may take {wanted / GIB:.1f} of {total / GIB:.1f} GiB of memory",
            "pulumi config set shmSize 1Gi (or less)",
        )
    return f"{wanted / GIB:.1f} GiB for all pods"


def swap(facts: Facts, expect: Expectations) -> Fault | str:
    """Swap is off; many kubelets refuse to start with it, and swapped training is far too slow."""
    only_for_own_k3s(expect)
    kib = facts.number("SwapTotal_kib")
    if kib:
        return warning(
            f"{kib / GIB:.1f} GiB of swap is on",
            "run `swapoff -a`, and remove swap from /etc/fstab",
        )
    return "off"


def selinux(facts: Facts, expect: Expectations) -> Fault | str:
    """If SELinux is enforcing, the SELinux policy of k3s is installed."""
    only_for_own_k3s(expect)
    if facts.one("selinux") == "enforcing" and facts.one("selinux_k3s") != "yes":
        return warning(
            "SELinux is enforcing and k3s' policy is not installed",
            "install the package k3s-selinux (rpm.rancher.io), then run pulumi up",
        )
    return facts.one("selinux")


def apparmor(facts: Facts, expect: Expectations) -> Fault | str:
    """If AppArmor is on, apparmor_parser is installed; without it no pod starts."""
    only_for_own_k3s(expect)
    if facts.one("apparmor") == "on" and facts.one("apparmor_parser") != "yes":
        return error(
            "AppArmor is on and apparmor_parser is missing", "install the package apparmor"
        )
    return facts.one("apparmor")


def module(name: str) -> Check:
    """Make the check of a kernel module that pods need."""

    def judge(facts: Facts, _: Expectations) -> Fault | str:
        state = facts.one(f"module.{name}")
        if state == "missing":
            return error(
                f"kernel module {name} is neither loaded nor installed",
                "install the kernel's modules (linux-modules-extra-$(uname -r), "
                "kernel-modules-extra) and reboot",
            )
        return state

    about = f"The kernel has the module {name}, which pods need."
    return Check(f"module-{name}", judge, about=about)


def clock(facts: Facts, _: Expectations) -> Fault | str:
    """The clock agrees with this machine's; certificates are refused when clocks differ."""
    skew = abs(facts.number("clock_skew"))
    fix = "turn time synchronisation on: timedatectl set-ntp true (or chronyd, ntpd)"
    if skew > CLOCK_SECONDS:
        level = error if skew > CLOCK_ERROR_SECONDS else warning
        return level(f"the clock is {skew} s apart from this machine's", fix)
    try:
        synchronised = facts.one("clock_synchronised") != "no"
    except NotSeenError:
        synchronised = True  # it is not known, for instance without systemd; that is no fault
    return f"within {skew} s" if synchronised else warning("the clock is not synchronised", fix)


def nfs_client(facts: Facts, expect: Expectations) -> Fault | str:
    """The host can mount the data from the NFS server; the kubelet uses mount.nfs for that."""
    only_for_own_k3s(expect)
    # With nfs-first-node, `pulumi up` installs the NFS client.
    skip_unless(expect.nfs == OTHER, "the data do not come from an NFS server of others")
    if facts.one("mount_nfs") != "yes":
        return error(
            "mount.nfs is missing on this host, so no pod here would get the data",
            "apt-get install nfs-common (dnf install nfs-utils, zypper install nfs-client)",
        )
    return "mount.nfs is there"


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
    Check("selinux", selinux),
    Check("apparmor", apparmor),
    module("br_netfilter"),
    module("overlay"),
    Check("clock", clock),
    Check("nfs-client", nfs_client),
)
