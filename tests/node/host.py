"""A test host: Debian with real systemd, sshd and sudo, in namespaces of its own.

The tests reach it over a veth link, as one reaches a server over a network. The end of process 1
ends the whole host. The changes of its root file system are on a tmpfs in its mount namespace, and
vanish with it.
"""

import fcntl
import hashlib
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sandbox import network
from sandbox.waiting import wait_until
from tests.node.rootfs import SYSTEM, rootfs, run

BOOT = Path(__file__).parent / "boot.sh"
BOOT_SECONDS = 300
HOST_LINKS = "dtn-"  # the names of the hosts' links begin with it
# The paths to which a running system writes by itself, whatever the tests do.
OWN_BUSINESS = (
    *("/proc", "/sys", "/dev", "/run", "/var/log/journal", "/var/log/wtmp", "/var/log/lastlog"),
    *("/var/log/btmp", "/var/lib/systemd", "/var/lib/sudo", "/var/lib/private", "/var/cache"),
    *("/lab", "/home/admin/.cache", "/home/deploy/.cache"),
)
if SYSTEM == "ubuntu":
    OWN_BUSINESS += ("/root/.cache",)  # a note that the message of the day was shown
UNHASHED = ("/usr/lib/", "/usr/share/", "/usr/bin/", "/usr/sbin/", "/usr/libexec/")


@dataclass(frozen=True)
class Entry:
    """One path of a file list.

    `content` is a sha256, the target of a link, or the size and time of a large system file.
    `mtime` is in nanoseconds.
    """

    mode: str
    owner: tuple[int, int]
    content: str
    mtime: int

    @property
    def lasting(self) -> tuple[str, tuple[int, int], str]:
        """What must be the same after `destroy`. A folder's time of change cannot be the same."""
        return self.mode, self.owner, self.content


class Host:
    """A running host, which the caller has to close.

    Args:
        name: the host name.
        shared: folders and files of this machine that the host has under the same path.
    """

    pid: int
    """The PID, on this machine, of the host's process 1."""

    address: str
    """The host's address on the link."""

    gateway: str
    """This machine's end of the link."""

    def __init__(self, name: str, *shared: Path) -> None:
        self.name = name
        self._left_out = (*OWN_BUSINESS, *map(str, shared))
        self._scratch = tempfile.TemporaryDirectory(prefix="disttrain-node-")
        # The folder's name is unique, while a worker of the tests may have two hosts of one name.
        self._cgroup = cgroup2_root() / Path(self._scratch.name).name
        self._cgroup.mkdir()
        folder = Path(self._scratch.name)
        unshare = ["unshare", "--mount", "--uts", "--net", "--pid", "--ipc", "--cgroup", "--fork"]
        enter = f'echo $$ >{self._cgroup}/cgroup.procs; exec "$@"'
        with (folder / "boot.log").open("w") as log:
            self._process = subprocess.Popen(
                [
                    # The host ends with its parent, and then the kernel ends all of its processes.
                    *("setpriv", "--pdeathsig", "KILL", "sh", "-c", enter, "sh"),
                    *(*unshare, "--kill-child", "sh", str(BOOT), str(rootfs()), str(folder), name),
                    *map(str, shared),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self._boot(folder / "boot.log")
        except BaseException:
            self.close()
            raise

    def _boot(self, log: Path) -> None:
        def not_up() -> str | None:
            if self._process.poll() is not None:
                raise RuntimeError(f"the test host did not boot:\n{log.read_text()}")
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
            pids = children.read_text().split()
            if not pids:
                return "no process 1 yet"
            self.pid = int(pids[0])
            # The namespaces are complete only when process 1 has become systemd.
            comm = Path(f"/proc/{self.pid}/comm").read_text().strip()
            return None if comm == "systemd" else f"process 1 is still {comm}"

        wait_until("the test host's process 1", not_up, timeout_seconds=BOOT_SECONDS)
        with machine_lock():
            link = network.connect(f"{HOST_LINKS}{self.pid}"[:15], self.pid)
        self.address, self.gateway = str(link.node), str(link.host)
        wait_until("systemd to be done", self._jobs, timeout_seconds=BOOT_SECONDS)
        self.shell("mkdir -p /root/.ssh /home/admin/.ssh /home/deploy/.ssh /lab")
        self.new_host_key()

    def _sshd_missing(self) -> str | None:
        state = self.try_shell("systemctl is-active ssh").stdout.strip()
        if state == "failed":  # sshd was started before there was a host key.
            self.try_shell("systemctl reset-failed ssh; systemctl start --no-block ssh")
        return None if state == "active" else f"ssh.service is {state}"

    def _jobs(self) -> str | None:
        state = self.try_shell("systemctl is-system-running").stdout.strip()
        return None if state in ("running", "degraded") else f"systemd is {state}"

    def new_host_key(self) -> None:
        """Give the host a new SSH host key, as after an installation from scratch."""
        self.shell(
            "rm -f /etc/ssh/ssh_host_*; ssh-keygen -q -t ed25519 -N '' "
            "-f /etc/ssh/ssh_host_ed25519_key; systemctl restart --no-block ssh"
        )
        wait_until("sshd", self._sshd_missing, timeout_seconds=BOOT_SECONDS)

    def key_pair(self) -> tuple[str, str]:
        """Return the host's SSH host key: private, public."""
        key = self.path("/etc/ssh/ssh_host_ed25519_key")
        return key.read_text(), key.with_suffix(".pub").read_text()

    def set_host_key(self, pair: tuple[str, str]) -> None:
        """Let the host have an earlier SSH host key again."""
        key = self.path("/etc/ssh/ssh_host_ed25519_key")
        key.write_text(pair[0])
        key.with_suffix(".pub").write_text(pair[1])
        self.shell("systemctl restart ssh")

    @property
    def host_key(self) -> str:
        """The public SSH host key, as known_hosts has it after the name."""
        words = self.path("/etc/ssh/ssh_host_ed25519_key.pub").read_text().split()
        return " ".join(words[:2])

    def authorize(self, public_key: str) -> None:
        """Let this key log in as root, admin and deploy."""
        for user, home in (("root", "/root"), ("admin", "/home/admin"), ("deploy", "/home/deploy")):
            self.path(f"{home}/.ssh/authorized_keys").write_text(public_key)
            self.shell(f"chown -R {user}: {home}/.ssh; chmod -R go= {home}/.ssh")

    def path(self, inside: str) -> Path:
        """Return a path of the host, as this machine sees it.

        No folder in the path may be a link.
        """
        return Path(f"/proc/{self.pid}/root{inside}")

    def enter(self, *command: str) -> list[str]:
        """Return the command line that runs `command` on the host, as root."""
        return ["nsenter", "--target", str(self.pid), "--all", "--", *command]

    def try_shell(self, text: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a shell text as root."""
        return subprocess.run(
            self.enter("/bin/sh", "-c", f"cd /; {text}"),
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    def shell(self, text: str, stdin: str = "") -> str:
        """Return the output of a shell text, run as root. The test fails if it does not succeed."""
        done = self.try_shell(text, stdin)
        assert done.returncode == 0, f"{text}: {done.stdout}{done.stderr}"
        return done.stdout

    def exists(self, inside: str) -> bool:
        """Return whether the host has this path."""
        return self.try_shell(f"test -e {inside}").returncode == 0

    def files(self) -> dict[str, Entry]:
        """Return every path of the root file system but those that a system writes by itself."""
        root = f"/proc/{self.pid}/root"
        found: dict[str, Entry] = {}
        for folder, names, files in os.walk(root):
            inside = folder.removeprefix(root)
            names[:] = [name for name in names if not self._is_own(f"{inside}/{name}")]
            for name in (*names, *files):
                path = f"{inside}/{name}"
                if not self._is_own(path):
                    with suppress(FileNotFoundError):  # The file is gone by now.
                        found[path] = self._entry(path, f"{folder}/{name}")
        return found

    def _is_own(self, path: str) -> bool:
        """Return whether a running system writes to this path by itself, or the path is shared."""
        return path in self._left_out or "/systemd-private-" in path

    def _entry(self, path: str, here: str) -> Entry:
        info = os.lstat(here)
        if stat.S_ISLNK(info.st_mode):
            content = str(Path(here).readlink())
        elif not stat.S_ISREG(info.st_mode):
            content = ""
        elif path.startswith(UNHASHED):
            content = f"{info.st_size} bytes of {info.st_mtime_ns}"
        else:
            content = hashlib.sha256(Path(here).read_bytes()).hexdigest()
        mode = stat.filemode(info.st_mode)
        # Services make and remove private folders there.
        mtime = 0 if path in ("/tmp", "/var/tmp") else info.st_mtime_ns
        return Entry(mode, (info.st_uid, info.st_gid), content, mtime)

    def close(self) -> None:
        """End the host, and remove its scratch folder and its control group."""
        with suppress(ProcessLookupError, AttributeError):
            os.kill(self.pid, 9)
        self._process.kill()
        self._process.wait()

        def busy() -> str | None:
            try:
                remove_cgroups(self._cgroup)
            except OSError as error:
                return str(error)
            return None

        wait_until("the test host's processes to end", busy, timeout_seconds=120)
        self._scratch.cleanup()


def remove_cgroups(top: Path) -> None:
    """Remove a control group and the groups below it. Raises OSError while a process is in one."""
    for folder, _, _ in os.walk(top, topdown=False):
        Path(folder).rmdir()


def cgroup2_root() -> Path:
    """Return where cgroup version 2 is mounted. Beside version 1 it may have no controllers."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, folder, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(folder)
    raise RuntimeError("no cgroup2 is mounted here: systemd of the test host needs one")


@contextmanager
def machine_lock() -> Iterator[None]:
    """Hold the lock under which the sandbox chooses subnets (sandbox/node.py)."""
    descriptor = os.open("/var/lib", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_key(folder: Path) -> tuple[str, str]:
    """Return a new pair of SSH keys: private, public."""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
    return (folder / "key").read_text(), (folder / "key.pub").read_text()
