"""Installs the Debian and Ubuntu packages whose programs the sandbox needs and does not find."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sandbox.say import phase

# Program or file: its package. Nothing is installed for a program that is already there. A `:` is
# between the places where a file may be.
CLUSTER_PACKAGES: Mapping[str, str] = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge:/opt/cni/bin/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "mount": "mount",
    "openssl": "openssl",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}
TEST_PACKAGES: Mapping[str, str] = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "tinyproxy": "tinyproxy",
    "curl": "curl",
    "chromium": "chromium",
    "chromedriver": "chromium-driver",
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
}

# For the virtual machine of tests/vm, which only `make test-engines` starts.
VIRTUAL_MACHINE_PACKAGES: Mapping[str, str] = {
    "qemu-system-x86_64": "qemu-system-x86",
    "mkfs.ext4": "e2fsprogs",
    "ip": "iproute2",
    "mount": "mount",
}


def missing_packages(wanted: Mapping[str, str]) -> list[str]:
    """The packages whose program is not on this machine, sorted by name."""
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"

    def present(program: str) -> bool:
        if program.startswith("/"):
            return any(Path(place).exists() for place in program.split(":"))
        return shutil.which(program, path=path) is not None

    return sorted({package for program, package in wanted.items() if not present(program)})


def ensure_packages(*wanted: Mapping[str, str]) -> None:
    """Install the packages whose program is missing; raise the errors of `install_packages`."""
    missing = sorted({package for group in wanted for package in missing_packages(group)})
    if missing:
        install_packages(missing)


def install_packages(packages: Sequence[str]) -> None:
    """Install packages with apt-get.

    Raises:
        RuntimeError: there is no apt-get, this is not root, or apt-get failed; the text names
            the packages.
    """
    names = " ".join(packages)
    if not shutil.which("apt-get"):
        raise RuntimeError(f"this machine has no apt-get; install these packages first: {names}")
    if os.geteuid() != 0:
        raise RuntimeError(f"run as root, or install these packages first: {names}")
    with phase(f"apt-get install {names}"):
        _apt_get(["update"])
        _apt_get(["install", "-y", "--no-install-recommends", *packages])


def unpack_packages(folder: Path, names: Iterable[str]) -> None:
    """Unpack packages into a folder, without installing anything on this machine.

    This is for packages that must not be installed here: a further kernel, or a file server that
    its package would start. Their scripts do not run, and their dependencies are not unpacked.

    Args:
        folder: an empty folder.
        names: the names of the packages in apt.

    Raises:
        RuntimeError: apt-get or dpkg failed; the text ends with its last lines.
    """
    archives = folder / "archives"
    archives.mkdir()
    download_packages(archives, names)
    for archive in sorted(archives.glob("*.deb")):
        _run(["dpkg", "-x", str(archive), str(folder)])
    shutil.rmtree(archives)


def download_packages(folder: Path, names: Iterable[str]) -> None:
    """Download the archives of packages into a folder.

    Args:
        folder: a folder that exists.
        names: the names of the packages in apt.

    Raises:
        RuntimeError: apt-get failed; the text ends with its last lines.
    """
    _apt_get(["update"])
    # apt downloads as a user of its own, which may not write into root's folder. It would warn.
    _apt_get(["-o", "APT::Sandbox::User=root", "download", *names], folder)


def _apt_get(arguments: Iterable[str], folder: Path | None = None) -> None:
    _run(["apt-get", "-q", *arguments], folder)


def _run(command: Sequence[str], folder: Path | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise RuntimeError(f"{' '.join(command)} failed:\n{tail}")
