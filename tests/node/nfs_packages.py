"""Debian's NFS packages as a repository on a test host, which can reach no other repository."""

import hashlib
import subprocess
from pathlib import Path

from sandbox.cache import cached_folder, content_key
from sandbox.packages import download_packages
from sandbox.say import phase
from tests.node.host import Host

# nfs-kernel-server, and all packages that it needs and a small Debian lacks.
PACKAGES = (
    *("nfs-kernel-server", "nfs-common", "rpcbind", "keyutils", "ucf", "sensible-utils"),
    *("netbase", "lsb-base", "libevent-core-2.1-7", "libkeyutils1", "libnfsidmap1"),
    *("libsqlite3-0", "libtirpc3", "libtirpc-common", "libwrap0", "libpython3.11-minimal"),
)
PLACE = "/lab/repository"


def packages() -> Path:
    """Return the folder with the packages and their index."""

    def make(folder: Path) -> None:
        with phase("download Debian's NFS packages"):
            download_packages(folder, PACKAGES)
            index = "\n".join(_entry(archive) for archive in sorted(folder.glob("*.deb")))
            (folder / "Packages").write_text(index)

    return cached_folder("nfs-packages", content_key(*PACKAGES, Path(__file__)), make)


def _entry(archive: Path) -> str:
    control = subprocess.run(
        ["dpkg-deb", "--field", str(archive)], check=True, capture_output=True, text=True
    ).stdout
    content = archive.read_bytes()
    return (
        f"{control}Filename: ./{archive.name}\nSize: {len(content)}\n"
        f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
    )


def serve_packages(host: Host) -> None:
    """Let apt on the host use this repository and no other. Its lists are empty, as at first."""
    host.shell(
        f"mkdir -p {PLACE}; rm -rf /var/lib/apt/lists/* /etc/apt/sources.list.d; "
        f"echo 'deb [trusted=yes] file:{PLACE} ./' >/etc/apt/sources.list"
    )
    for file in packages().iterdir():
        if file.is_file():
            host.path(f"{PLACE}/{file.name}").write_bytes(file.read_bytes())
