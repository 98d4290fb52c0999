"""Checks what the sandbox needs of the machine before anything is made."""

import os
import platform
import shlex
import shutil
import subprocess
from pathlib import Path

from sandbox.cgroups import missing_controllers
from sandbox.components import CNI_FOLDERS, CNI_PLUGINS, PROGRAMS, SYSTEM_PATH, find_cni_folder
from sandbox.layout import Layout

# Each program, and its package in Debian and Ubuntu.
HOST_PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setsid": "util-linux",
    "mount": "mount",
    "openssl": "openssl",
}
# The matches and targets that kube-proxy's rules use.
IPTABLES_TRIALS = (
    "-t nat -A POSTROUTING -m comment --comment trial -m mark --mark 1 -j MASQUERADE",
    "-t nat -A PREROUTING -p tcp -m statistic --mode random --probability 0.5"
    " -j DNAT --to-destination 127.0.0.1:1",
    "-t filter -A FORWARD -m conntrack --ctstate INVALID -j DROP",
)


def require_root_on_linux() -> None:
    """Raise RuntimeError unless this process is root on Linux, which every command needs."""
    if platform.system() != "Linux":
        raise RuntimeError(
            f"the sandbox needs Linux, this is {platform.system()}; try `make demo-local`"
        )
    if os.geteuid() != 0:
        raise RuntimeError("the sandbox makes network and mount namespaces: run it as root (sudo)")


def problems(layout: Layout, bin_dir: Path) -> list[str]:
    """One sentence for each thing that the machine lacks, with the remedy."""
    found = _missing_programs(bin_dir)
    return found or _missing_features(layout)  # these checks run the programs


def _missing_programs(bin_dir: Path) -> list[str]:
    found = [
        f"{program} is not installed: apt-get install {package}"
        for program, package in HOST_PROGRAMS.items()
        if not shutil.which(program, path=SYSTEM_PATH)
    ]
    if find_cni_folder() is None:
        folders = " or ".join(str(folder) for folder in CNI_FOLDERS)
        found.append(
            f"the CNI plugins {', '.join(CNI_PLUGINS)} are not in {folders}: "
            "apt-get install containernetworking-plugins"
        )
    found += [
        f"{bin_dir} has no {program}: run `python3 -m sandbox setup`"
        for program in PROGRAMS
        if not (bin_dir / program).exists()
    ]
    return found


def _missing_features(layout: Layout) -> list[str]:
    found = [
        f"the control group controller {controller!r} is missing in /sys/fs/cgroup: enable it in "
        "the kernel or in the container that this runs in"
        for controller in missing_controllers()
    ]
    veth = "ip link add trial0 type veth peer name trial1"
    if reason := _trial(veth):
        found.append(f"the kernel makes no veth links: {reason}")
    for rule in IPTABLES_TRIALS:
        if reason := _trial(f"iptables {rule}"):
            found.append(f"iptables cannot do `{rule}`: {reason}")
    if reason := _overlay_trial(layout.containerd_store):
        found.append(
            f"overlayfs does not work in {layout.containerd_store}: {reason} (choose a state "
            "folder on ext4 or xfs: inside a container, a volume)"
        )
    return found


def _overlay_trial(store: Path) -> str | None:
    trial = store / "overlay-trial"
    for folder in ("lower", "upper", "work", "merged"):
        (trial / folder).mkdir(parents=True, exist_ok=True)
    try:
        return _trial(
            f"cd {shlex.quote(str(trial))} && mount -t overlay overlay "
            "-o lowerdir=lower,upperdir=upper,workdir=work merged && touch merged/file"
        )
    finally:
        shutil.rmtree(trial)


def _trial(script: str) -> str | None:
    """Run a command in temporary namespaces, and return why it failed; None if it did not."""
    done = subprocess.run(
        ["unshare", "--mount", "--net", "sh", "-c", script],
        env={"PATH": SYSTEM_PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    return " ".join(done.stderr.split()) if done.returncode else None
