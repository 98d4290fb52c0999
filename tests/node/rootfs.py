"""The root file system of a test host: made by debootstrap once, and cached.

Debian; with DISTTRAIN_TEST_HOST=ubuntu it is Ubuntu, whose archive keyring has to be there.
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
PASSWORD = "correct horse 'battery' $taple"  # of `admin`, for sudo
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
    """The folder; to be mounted below an overlay, never written to."""

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
    """Where its packages come from."""
    if SYSTEM == "ubuntu":
        return "http://archive.ubuntu.com/ubuntu"
    return debian_mirror(debian_sources())


def run(*command: str) -> str:
    """Output of a command; raises RuntimeError with its last lines when it fails."""
    done = subprocess.run(
        command, env={**os.environ, **apt_proxy()}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise RuntimeError(f"{' '.join(command[:3])} failed:\n{tail}")
    return done.stdout
