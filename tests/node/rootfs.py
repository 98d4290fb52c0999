"""Makes the root file system of a test host once, by debootstrap, and caches it.

It is Debian. With DISTTRAIN_TEST_HOST=ubuntu it is Ubuntu; then this machine must have the keyring
of Ubuntu's archive.
"""

import os
import subprocess
from pathlib import Path

from sandbox.base_image import apt_proxy, debian_mirror, debian_sources
from sandbox.cache import cached_folder, content_key
from sandbox.say import phase

SYSTEM = os.environ.get("DISTTRAIN_TEST_HOST", "debian")
SUITE = {"debian": "bookworm", "ubuntu": "jammy"}[SYSTEM]
PACKAGES = (
    *("systemd", "dbus", "openssh-server", "sudo", "curl", "ca-certificates"),
    *(
        "iproute2",
        "iputils-ping",
        "procps",
        "openssl",
        "python3",
    ),  # python3: for the stand-in of k3s
)
PASSWORD = "correct horse 'battery' $taple"  # the user admin needs it for sudo
USERS = f"""
useradd --create-home --shell /bin/bash admin
useradd --create-home --shell /bin/bash deploy
chpasswd <<'END'
admin:{PASSWORD}
END
echo 'admin ALL=(ALL) ALL' >/etc/sudoers.d/admin
echo 'deploy ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/deploy
rm -f /etc/ssh/ssh_host_*
"""


def rootfs() -> Path:
    """Return the folder of the root file system.

    It is the lower layer of an overlay, never written to.
    """

    def make(folder: Path) -> None:
        root = folder / "root"
        with phase("debootstrap of the test host"):
            run(
                *("debootstrap", "--variant=minbase", "--force-check-gpg"),
                *(f"--include={','.join(PACKAGES)}", SUITE, str(root)),
                mirror(),
            )
            run("chroot", str(root), "sh", "-euc", USERS)

    return cached_folder("node-rootfs", content_key(SUITE, *PACKAGES, USERS), make) / "root"


def mirror() -> str:
    """Return the mirror from which the packages come."""
    if SYSTEM == "ubuntu":
        return "http://archive.ubuntu.com/ubuntu"
    return debian_mirror(debian_sources())


def run(*command: str) -> str:
    """Return the output of a command. Raise RuntimeError with its last lines if it fails."""
    done = subprocess.run(
        command, env={**os.environ, **apt_proxy()}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise RuntimeError(f"{' '.join(command[:3])} failed:\n{tail}")
    return done.stdout
