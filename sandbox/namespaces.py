"""Makes the Linux namespaces of a cluster, which one process, the holder, keeps alive.

The holder is the program `pause`, process 1 of its own PID namespace. When it ends, the kernel
kills every process of the cluster, and then removes its mounts, links and iptables rules.
"""

import os
import shlex
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandbox.layout import Layout
from sandbox.waiting import wait_until

MARK = "--holder-of"
# The kubelet sets these for the whole machine, and no option prevents it. In the cluster's mount
# namespace a file with the wanted value covers each of them, so that the host's do not change.
KUBELET_SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}


@dataclass(frozen=True)
class Holder:
    """The process that keeps a cluster's namespaces, by its PID on the host."""

    pid: int

    def enter(self, *command: str) -> list[str]:
        """The command line that runs `command` in the namespaces."""
        target = str(self.pid)
        kinds = ("--mount", "--uts", "--net", "--pid")
        return ["nsenter", "--target", target, *kinds, "--", *command]

    def inside(self, path: str) -> Path:
        """An absolute path as the holder sees it."""
        return Path(f"/proc/{self.pid}/root{path}")

    def is_alive(self) -> bool:
        """Whether the process exists and is no zombie."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return status.rpartition(")")[2].split()[0] not in "ZX"

    def end(self) -> None:
        """Kill the holder and wait until all processes in its namespaces have ended.

        Raises:
            TimeoutError: a process does not end.
        """
        os.kill(self.pid, signal.SIGKILL)
        wait_until(
            "the cluster's processes to end",
            # Process 1 of a PID namespace ends after all others in it (pid_namespaces(7)).
            lambda: f"process {self.pid} still runs" if self.is_alive() else None,
            timeout_seconds=60,
        )


def find_holder(layout: Layout) -> Holder | None:
    """The cluster's holder or None, found by its command line in the process table.

    A file with its PID could be out of date; the process table cannot.
    """
    wanted = [MARK, str(layout.root)]
    for pid in _pids():
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:  # the process has just ended
            continue
        if arguments.rstrip("\0").split("\0")[1:] == wanted:
            return Holder(pid)
    return None


def wait_until_gone(layout: Layout) -> None:
    """Wait until no process is left in the namespaces.

    `unshare`, the holder's parent, ends after the holder.

    Raises:
        TimeoutError: a process does not end.
    """
    end = f"{MARK} {shlex.quote(str(layout.root))}"  # both command lines end with it

    def still_there() -> str | None:
        for pid in _pids():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            except OSError:  # the process has just ended
                continue
            if words.rstrip("\0").replace("\0", " ").endswith(end):
                return f"process {pid} still runs"
        return None

    wait_until("the cluster's processes to end", still_there, timeout_seconds=60)


def start_holder(layout: Layout, pause: Path) -> Holder:
    """Make the namespaces, prepare them, and start `pause` in them.

    Raises:
        RuntimeError: the preparation failed; the text is the shell's error text.
    """
    log = layout.log / "namespaces.log"
    unshare = ["unshare", "--mount", "--uts", "--net", "--pid", "--fork", "--kill-child"]
    command = [*unshare, "--mount-proc", "sh", "-c", prepare_script(layout, pause)]
    # The shell ends at once, and so the holder keeps running when this program has ended.
    background = 'setsid "$@" </dev/null >"$LOG" 2>&1 & echo $!'
    started = subprocess.run(
        ["sh", "-c", background, "sh", *command],
        env={"PATH": os.environ["PATH"], "LOG": str(log)},
        capture_output=True,
        text=True,
        check=True,
    )
    unshare_pid = int(started.stdout)

    def not_yet() -> str | None:
        if find_holder(layout):
            return None
        if not Path(f"/proc/{unshare_pid}/exe").exists():  # ended, or a zombie
            raise RuntimeError(f"the namespaces could not be made:\n{log.read_text().strip()}")
        return "its preparation still runs"

    wait_until("the cluster's namespaces", not_yet, timeout_seconds=20)
    holder = find_holder(layout)
    assert holder is not None
    return holder


def prepare_script(layout: Layout, pause: Path) -> str:
    """The shell script that process 1 runs before it becomes `pause`."""

    def mount(source: Path, target: str) -> str:
        return f"mount --bind {shlex.quote(str(source))} {target}"

    lines = [
        "set -eu",
        "mount --make-rshared /",  # mounts of pods' volumes propagate in this namespace only
        "mount -t tmpfs -o mode=755 tmpfs /run",  # xtables.lock, netns, shims' sockets
        "mkdir /run/lock /run/sysctl",
        mount(layout.kubelet, "/var/lib/kubelet"),
        mount(layout.cni, "/var/lib/cni"),
        mount(layout.log, "/var/log"),
    ]
    for i, (name, value) in enumerate(KUBELET_SYSCTLS.items()):
        lines.append(f"echo {value} >/run/sysctl/{i}")
        lines.append(f"mount --bind /run/sysctl/{i} /proc/sys/{name}")
    lines += [
        f"echo {layout.node_name} >/proc/sys/kernel/hostname",
        "echo 1 >/proc/sys/net/ipv4/ip_forward",  # of this network namespace
        "ip link set lo up",
        shlex.join(["exec", str(pause), MARK, str(layout.root)]),
    ]
    return "\n".join(lines)


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
