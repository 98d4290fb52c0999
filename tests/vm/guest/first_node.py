"""Runs the scripts of the storage `nfs-first-node` in the guest, with its kernel's NFS server.

The guest has no systemd: `SYSTEMCTL` does what the unit nfs-server of Debian's package does. No
package is installed either: the programs exist as on a machine whose server is off.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from infra.node.shell_program import assemble_program, script_text
from tests.vm.guest import server
from tests.vm.guest.client import MOUNT_POINT, USER_ID, Client
from tests.vm.guest.programs import environment, run

ADDRESS = "10.98.0.1"  # the server's address for all clients
STAND_INS, SERVICE = Path("/run/stand-ins"), Path("/run/service")
SELF = Path("/mnt/self")
CLIENTS = dict[str, Client]()
OPTIONS = "nfsvers=4.1,hard,timeo=50,retry=0"
# It serves no version 3, which the real unit would serve too, because that needs rpcbind.
SYSTEMCTL = f"""#!/bin/sh
case $* in
  "is-active --quiet nfs-server") [ -e {SERVICE} ] ;;
  "is-active nfs-server") [ -e {SERVICE} ] && echo active || {{ echo inactive; exit 3; }} ;;
  "is-enabled nfs-server") [ -e {SERVICE}-on ] && echo enabled || {{ echo disabled; exit 1; }} ;;
  "disable --quiet nfs-server") rm -f {SERVICE}-on ;;
  "enable --quiet nfs-server") touch {SERVICE}-on ;;
  "start nfs-server")
    exportfs -r
    rpc.nfsd --port 2049 --no-nfs-version 3 8 && rpc.mountd --no-nfs-version 3 && touch {SERVICE}
    ;;
  "stop nfs-server")
    rpc.nfsd 0; exportfs -au; exportfs -f; killall rpc.mountd; rm -f {SERVICE} ;;
  *) echo "systemctl: $*" >&2; exit 1 ;;
esac
"""


def begin() -> None:
    """Make a machine with a data folder and a server that is off, and two machines linked to it."""
    server.prepare()
    Path("/etc/exports").write_text("# nothing\n")
    STAND_INS.mkdir()
    (STAND_INS / "systemctl").write_text(SYSTEMCTL)
    (STAND_INS / "systemctl").chmod(0o755)
    run("ip", "address", "add", f"{ADDRESS}/32", "dev", "lo")
    for number, name in enumerate(("east", "west"), 1):
        CLIENTS[name] = Client(name, number)


def script(name: str, action: str, variables: dict[str, str]) -> dict[str, Any]:
    """Run a script of infra/node/scripts on the server; return its exit status and output."""
    folder = {"DATA_ROOT": str(server.EXPORTED), "SERVER_ADDRESS": ADDRESS, "OWNER": "one"}
    given = environment()
    given["PATH"] = f"{STAND_INS}:{given['PATH']}"
    done = subprocess.run(
        ["sh", "-s", "--", action],
        input=assemble_program(script_text(name), {**folder, **variables}),
        env=given,
        capture_output=True,
        text=True,
        check=False,
    )
    return {"status": done.returncode, "said": done.stdout + done.stderr}


def restart() -> None:
    """Restart the server as a reboot does: it forgets what no file says."""
    given = environment()
    given["PATH"] = f"{STAND_INS}:{given['PATH']}"
    for words in ("stop nfs-server", "start nfs-server"):
        subprocess.run(["systemctl", *words.split()], env=given, check=True)


def seen() -> dict[str, Any]:
    """Return what the server serves, what its files say, and what is in the data folder."""
    exports = Path("/etc/exports.d")
    lines = [line.split() for line in run("exportfs", "-s").splitlines()]
    threads = Path("/proc/fs/nfsd/threads")
    return {
        "served": sorted([words[0], words[1].partition("(")[0]] for words in lines),
        "files": sorted(path.name for path in exports.iterdir()) if exports.exists() else None,
        "threads": int(threads.read_text()),
        "data": sorted(path.name for path in server.EXPORTED.iterdir()),
        "notes": Path("/var/lib/disttrain-nfs").exists(),
        "enabled": Path(f"{SERVICE}-on").exists(),
    }


def mount(name: str, folder: str = "") -> str:
    """Let a machine mount a folder; return the error text, or an empty text."""
    try:
        CLIENTS[name].mount(Path(folder or server.EXPORTED), OPTIONS, ADDRESS)
    except RuntimeError as error:
        return str(error)
    return ""


def mount_itself() -> None:
    """Let the first machine mount its own folder."""
    SELF.mkdir(parents=True, exist_ok=True)
    run("mount.nfs", f"{ADDRESS}:{server.EXPORTED}", str(SELF), "-o", OPTIONS)


def unmount_itself() -> None:
    """Unmount the first machine's own mount."""
    run("umount", str(SELF))


def write(name: str, file: str) -> str:
    """Let the trainer's user write and fsync a file there; return the error, or an empty text."""
    return CLIENTS[name].start(_write, file).end()[0]


def _write(tell: Any, _should_stop: Any, file: str) -> None:
    try:
        with (MOUNT_POINT / file).open("w") as opened:
            opened.write(file)
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        tell(os.strerror(error.errno or 0))
    else:
        tell("")


def read_itself(file: str) -> dict[str, Any]:
    """Return a file's text in the first machine's own mount, and whether the trainer's user owns
    it.

    The keys are `text` and `is_of_trainer`.
    """
    path = SELF / file
    owner = path.stat().st_uid
    return {"text": path.read_text(), "is_of_trainer": owner == USER_ID}


def unmount(name: str) -> None:
    """Let a machine unmount the folder."""
    CLIENTS[name].unmount()
