"""A stand-in for a machine, for the scripts about NFS: its files, package manager and NFS server.

The programs that the scripts call are those of this machine, except those that would change it.
Stand-ins replace these: they keep their state in files below the machine's root, and refuse what
the real programs refuse.
"""

import os
import shutil
import subprocess
from pathlib import Path

from tests.unit.run_script import run

PROGRAMS = (
    *("sh", "awk", "sed", "grep", "cat", "cut", "sort", "comm", "paste", "head", "tail", "mkdir"),
    *("mv", "cp", "rm", "rmdir", "chmod", "env", "flock", "printf", "ls", "readlink", "sync"),
    "stat",
)
# The programs that each real package contains, and (NEEDS) the packages that it needs. Many
# machines already have `rpcbind`.
BROUGHT = {
    "nfs-utils": ("exportfs", "rpc.nfsd", "mount.nfs"),
    "nfs-client": ("mount.nfs",),
    "nfs-kernel-server": ("exportfs", "rpc.nfsd"),
    "rpcbind": (),
}
NEEDS = {"nfs-utils": "rpcbind", "nfs-client": "rpcbind", "nfs-kernel-server": "nfs-client rpcbind"}

EXPORTFS = r"""
table=$ROOT/etab
touch "$table"
# like the real one it takes a folder that is there, and no option that it does not know
case $1 in
  -s) cat "$table" ;;
  -i)
    [ "$2" = -o ] || exit 22
    client=${4%:/*} folder=/${4##*:/}
    [ -d "$folder" ] || { echo "exportfs: Failed to stat $folder" >&2; exit 1; }
    client=$(printf '%s' "$client" | tr -d '[]')
    grep -vF "$folder  $client(" "$table" >"$table.new"
    echo "$folder  $client($3)" >>"$table.new"
    mv "$table.new" "$table"
    ;;
  -u)
    client=$(printf '%s' "${2%:/*}" | tr -d '[]') folder=/${2##*:/}
    grep -qF "$folder  $client(" "$table" || { echo "exportfs: Could not find" >&2; exit 1; }
    grep -vF "$folder  $client(" "$table" >"$table.new"
    mv "$table.new" "$table"
    ;;
  *) exit 22 ;;
esac
"""
SYSTEMCTL = r"""
service=$ROOT/service
case $* in
  "is-active --quiet nfs-server") [ "$(cat "$service/active" 2>/dev/null)" = active ] ;;
  "is-active nfs-server") cat "$service/active" 2>/dev/null || { echo inactive; exit 3; } ;;
  "is-enabled nfs-server") cat "$service/enabled" 2>/dev/null || exit 1 ;;
  "enable --quiet nfs-server")
    [ -e "$service/enabled" ] || { echo "Unit nfs-server.service does not exist" >&2; exit 1; }
    echo enabled >"$service/enabled"
    ;;
  "start nfs-server")
    [ ! -e "$ROOT/no-kernel-module" ] || { echo "Job for nfs-server.service failed" >&2; exit 1; }
    echo active >"$service/active"
    echo 8 >"$ROOT/proc/fs/nfsd/threads"
    ;;
  "disable --quiet nfs-server") echo disabled >"$service/enabled" ;;
  "stop nfs-server") rm -f "$service/active"; echo 0 >"$ROOT/proc/fs/nfsd/threads" ;;
  *) echo "systemctl: $*" >&2; exit 1 ;;
esac
"""
# This stand-in serves for both package managers: only the words before the package's name differ.
MANAGER = r"""
for word in "$@"; do name=$word; done
echo "$(basename "$0") $* via ${http_proxy:-nothing}" >>"$ROOT/calls"
[ ! -e "$ROOT/no-repository" ] || {
  echo "Curl error (7): cannot connect to http://user:secret@proxy.example.com:3128" >&2
  exit 1
}
for each in $(cat "$ROOT/needs/$name" 2>/dev/null) "$name"; do
  [ -e "$ROOT/packages/$each" ] && continue
  touch "$ROOT/packages/$each"
  for program in $(cat "$ROOT/brings/$each"); do cp "$ROOT/stock/$program" "$ROOT/bin/"; done
  case $each in nfs-utils | nfs-kernel-server)
    mkdir -p "$ROOT/service" "$ROOT/var/lib/nfs"
    touch "$ROOT/var/lib/nfs/export-lock" # which the real one leaves behind
    echo disabled >"$ROOT/service/enabled"
  esac
done
"""
# Like the real rpm, it removes no package if a package that stays needs one of them.
RPM = r"""
case $1 in
  -qa) ls "$ROOT/packages"; echo gpg-pubkey ;;
  -e)
    shift
    for other in $(ls "$ROOT/packages"); do
      case " $* " in *" $other "*) continue ;; esac
      for need in $(cat "$ROOT/needs/$other" 2>/dev/null); do
        case " $* " in *" $need "*) echo "error: $need is needed by $other" >&2; exit 1 ;; esac
      done
    done
    for name in "$@"; do
      rm "$ROOT/packages/$name"
      for program in $(cat "$ROOT/brings/$name"); do rm -f "$ROOT/bin/$program"; done
      case $name in nfs-utils | nfs-kernel-server) rm -rf "$ROOT/service" ;; esac
    done
    ;;
esac
"""
IP = 'echo "10.1.2.3 dev eth0 src $(cat "$ROOT/own-address") uid 0"'
GETENT = 'case $2 in nowhere) exit 2 ;; *) echo "$2 STREAM" ;; esac'


class NfsHost:
    """A machine with `dnf` or `zypper`, and with an empty data folder.

    Args:
        root: an empty folder, the root of the machine.
        manager: the name of its package manager.
    """

    def __init__(self, root: Path, manager: str = "dnf") -> None:
        self.root, self.data = root, root / "data"
        for name in ("bin", "stock", "packages", "needs", "brings", "proc/fs/nfsd", "data", "etc"):
            (root / name).mkdir(parents=True)
        for name in ("run", "var/lib", "proc/self"):
            (root / name).mkdir(parents=True)
        (root / "proc/self/mounts").write_text("/dev/sda1 / ext4 rw 0 0\n")
        (root / "proc/fs/nfsd/versions").write_text("-2 +3 +4 +4.1 +4.2\n")
        (root / "packages/bash").touch()
        (root / "own-address").write_text("10.1.2.3")
        for name in PROGRAMS:
            (root / "bin" / name).symlink_to(str(shutil.which(name)))
        for name, text in NEEDS.items():
            (root / "needs" / name).write_text(text)
        for name, programs in BROUGHT.items():
            (root / "brings" / name).write_text(" ".join(programs))
        for name, text in {"exportfs": EXPORTFS, "rpc.nfsd": "", "mount.nfs": ""}.items():
            self._program("stock", name, text)
        stand_ins = {"systemctl": SYSTEMCTL, manager: MANAGER, "rpm": RPM, "ip": IP}
        for name, text in {**stand_ins, "getent": GETENT, "journalctl": "", "touch": ""}.items():
            self._program("bin", name, text)
        (root / "bin/touch").unlink()
        (root / "bin/touch").symlink_to(str(shutil.which("touch")))
        for name in ("basename", "tr"):
            (root / "bin" / name).symlink_to(str(shutil.which(name)))

    def _program(self, folder: str, name: str, text: str) -> None:
        path = self.root / folder / name
        path.write_text(f"#!{self.root}/bin/sh\nROOT={self.root}\n{text}")
        path.chmod(0o755)

    def install(self, package: str) -> None:
        """Install a package, as an administrator does by hand."""
        manager = next(name for name in ("dnf", "zypper") if (self.root / "bin" / name).exists())
        subprocess.run(
            [str(self.root / "bin" / manager), "install", package],
            env={**os.environ, "PATH": str(self.root / "bin")},
            check=True,
        )
        (self.root / "calls").unlink()

    def uninstall(self, *packages: str) -> None:
        """Remove packages, as an administrator does by hand."""
        rpm = [str(self.root / "bin" / "rpm"), "-e", *packages]
        subprocess.run(rpm, env={**os.environ, "PATH": str(self.root / "bin")}, check=True)

    def run(
        self, script: str, action: str = "create", **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a script on this machine for the stack `dev`; `more` are further variables."""
        given = {
            "ROOT": str(self.root),
            "PATH": str(self.root / "bin"),
            "DATA_ROOT": str(self.data),
            "SERVER_ADDRESS": "10.1.2.3",
            "OWNER": "one",
            "STACK": "dev",
        }
        return run(script, action, **{**given, **more})

    def serve(self, **more: str) -> str:
        """Let the machine serve its data folder; return what the script printed."""
        return self.well(self.run("nfs-server.sh", **more))

    def stop(self, **more: str) -> str:
        """Take the server back; return what the script printed."""
        return self.well(self.run("nfs-server.sh", "delete", **more))

    def allow(self, node: str, client: str, action: str = "create", **more: str) -> str:
        """Allow a node to mount the folder from the address `client`, or take this back with
        `delete`.
        """
        return self.well(self.run("nfs-export.sh", action, NODE=node, CLIENT=client, **more))

    def mount(self, node: str, action: str = "create", **more: str) -> str:
        """Make the machine a client, or take this back with `delete`; return what the script
        printed.
        """
        return self.well(self.run("nfs-client.sh", action, NODE=node, **more))

    def well(self, done: subprocess.CompletedProcess[str]) -> str:
        """Fail if the script has failed; return what it printed."""
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def served(self) -> list[str]:
        """Return the clients to which the data folder is served."""
        etab = self.root / "etab"
        lines = etab.read_text().splitlines() if etab.exists() else []
        return sorted(line.split()[1].partition("(")[0] for line in lines)

    def written(self) -> list[str]:
        """Return the clients to which the folder will be served after the server's next start."""
        files = (self.root / "etc/exports.d").glob("*.exports")
        lines = [line for file in files for line in file.read_text().splitlines()]
        return sorted(
            line.split()[1].partition("(")[0] for line in lines if not line.startswith("#")
        )

    def packages(self) -> list[str]:
        """Return the names of the installed packages."""
        return sorted(path.name for path in (self.root / "packages").iterdir())

    def files(self) -> dict[str, str]:
        """Return the machine's lasting files by path, without the state of running programs."""
        kept = ("etc", "packages", "service", "data", "var")
        paths = [path for name in kept for path in sorted((self.root / name).rglob("*"))]
        return {
            str(path.relative_to(self.root)): "" if path.is_dir() else path.read_text()
            for path in paths
        }
