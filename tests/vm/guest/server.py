"""Runs the kernel's NFS server as Debian's package nfs-kernel-server does, but only version 4."""

from __future__ import annotations

from pathlib import Path

from tests.vm.guest.client import USER_ID
from tests.vm.guest.programs import run

EXPORTED = Path("/srv/training")
LEASE_SECONDS = 30  # the default is 90; 10 is too short for clients on a busy machine
THREADS = 8
PIPES, STATE = "/run/rpc_pipefs", "/var/lib/nfs/nfsdcld"


def start() -> None:
    """Serve the folder to all clients."""
    prepare()
    Path("/etc/exports").write_text(f"{EXPORTED} 10.98.0.0/16(rw,sync,no_subtree_check)\n")
    go_on()


def prepare() -> None:
    """Mount the disk as the folder, which the pods' user owns, and prepare what a server needs."""
    EXPORTED.mkdir(parents=True)
    run("mount", "-t", "ext4", "/dev/vda", str(EXPORTED))
    run("chown", f"{USER_ID}:{USER_ID}", str(EXPORTED))
    for kind, place in (("nfsd", "/proc/fs/nfsd"), ("rpc_pipefs", PIPES)):
        Path(place).mkdir(parents=True, exist_ok=True)
        run("mount", "-t", kind, kind, place)
    for file in ("etab", "rmtab"):
        (Path("/var/lib/nfs") / file).touch()
    Path(STATE).mkdir()
    run(
        "nfsdcld", "--pipefsdir", PIPES, "--storagedir", STATE
    )  # It remembers which clients may take their locks again after a restart.


def go_on() -> None:
    """Serve the folder; after `stop`, serve it again."""
    run("exportfs", "-ra")
    times = ("--lease-time", str(LEASE_SECONDS), "--grace-time", str(LEASE_SECONDS))
    run("rpc.nfsd", "--port", "2049", "--no-nfs-version", "3", *times, str(THREADS))
    run("rpc.mountd", "--no-nfs-version", "3")


def stop() -> None:
    """Stop serving. Opens, locks and connections are lost.

    The clients wait, because they mount with the option `hard`.
    """
    run("rpc.nfsd", "0")
    run("killall", "rpc.mountd")
    run("exportfs", "-au")


def clients() -> list[str]:
    """Return the server's information about each client that has a lease."""
    return sorted(path.read_text() for path in Path("/proc/fs/nfsd/clients").glob("*/info"))
