"""Debian's kernel and the programs of its NFS packages, unpacked into the cache.

The packages are not installed on this machine: its kernel may load no modules, and the package of
the server would start a server.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from sandbox.cache import cached_folder, content_key
from sandbox.packages import unpack_packages
from sandbox.say import phase

KERNEL = "linux-image-amd64"  # This package depends on that of the newest version.
PACKAGES = (
    "busybox-static",
    "libtirpc-common",
    # mount.nfs, and the server with the libraries that a Debian without the server may lack
    "nfs-common",
    "nfs-kernel-server",
    "libevent-core-2.1-7",
    "libkeyutils1",
    "libnfsidmap1",
    "libsqlite3-0",
    "libtirpc3",
    "libwrap0",
)
MODULES = (
    *("virtio_pci", "virtio_blk", "9p", "9pnet_virtio"),
    *("ext4", "crc32c_generic", "veth", "nfsd", "nfsv4"),
)


def debian() -> Path:
    """Return the folder with `boot/`, `lib/modules/`, `usr/` and the list `modules.order`.

    Raises:
        RuntimeError: the packages are not available here.
    """

    def make(folder: Path) -> None:
        with phase("unpack Debian's kernel and NFS programs"):
            unpack_packages(folder, [*PACKAGES, _kernel_package()])
            (version,) = (path.name for path in (folder / "lib/modules").iterdir())
            _run(str(folder / "bin/busybox"), "depmod", "-b", str(folder), version)
            order = modules_in_order((folder / "lib/modules" / version / "modules.dep").read_text())
            text = "".join(f"lib/modules/{version}/{file}\n" for file in order)
            (folder / "modules.order").write_text(text)

    key = content_key(KERNEL, *PACKAGES, *MODULES, Path(__file__))
    return cached_folder("debian-kernel", key, make)


def modules_in_order(dependencies: str) -> list[str]:
    """Return the files of `MODULES` and of all that they need, each after those that it needs.

    Args:
        dependencies: the text of modules.dep, a line `file: file ...` for each module.
    """
    needs = dict[str, list[str]]()
    for line in dependencies.splitlines():
        file, _, others = line.partition(":")
        needs[file] = others.split()
    by_name = {Path(file).name.removesuffix(".ko"): file for file in needs}
    order = list[str]()

    def add(file: str) -> None:
        for other in needs[file]:
            add(other)
        if file not in order:
            order.append(file)

    for name in MODULES:
        add(by_name[name])
    return order


def _kernel_package() -> str:
    """Return the name of the package of the newest kernel, such as linux-image-6.1.0-56-amd64."""
    for line in _run("apt-cache", "depends", KERNEL).splitlines():
        kind, _, name = line.strip().partition(": ")
        if kind == "Depends" and name.startswith("linux-image-"):
            return name
    raise RuntimeError(f"apt knows no package {KERNEL}: this test needs a machine with Debian")


def _run(*command: str) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
