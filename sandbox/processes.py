"""Starts the cluster's programs in its namespaces and checks whether they still run."""

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.namespaces import Holder
from sandbox.waiting import wait_until

TAIL_LINES = 15
END_SECONDS = 60
IN_BACKGROUND = 'setsid "$@" </dev/null >"$COMPONENT_LOG" 2>&1 & echo $!'


@dataclass(frozen=True)
class Component:
    """A program of the cluster; `command[0]` is an absolute path."""

    name: str
    command: tuple[str, ...]


class ComponentEndedError(RuntimeError):
    """A component is not running; the text ends with the last lines of its log."""


def advice(tail: str) -> str:
    """What to do if a component has ended for a reason that its log only hints at; else empty.

    Args:
        tail: the last lines of the component's log.
    """
    if "inotify" in tail and "too many open files" in tail:
        return (
            "\nThe programs of this user watch files at more places than the kernel allows (many "
            "systems allow 128 inotify instances, and a cluster of one node takes 13). End others, "
            "such as other clusters, or allow more: sysctl -w fs.inotify.max_user_instances=1024"
        )
    return ""


class Processes:
    """The components of one cluster.

    Args:
        holder: the namespaces in which they run.
        pids: folder for `<component>.pid`, which holds the PID in the cluster's PID namespace.
        logs: folder for `<component>.log`.
    """

    def __init__(self, holder: Holder, pids: Path, logs: Path) -> None:
        self.holder = holder
        self.pids = pids
        self.logs = logs

    def start(self, component: Component, environment: Mapping[str, str]) -> None:
        """Start a component in the background; process 1 of the namespaces becomes its parent."""
        started = subprocess.run(
            self.holder.enter("sh", "-c", IN_BACKGROUND, "sh", *component.command),
            env={**environment, "COMPONENT_LOG": str(self.log(component.name))},
            capture_output=True,
            text=True,
            check=True,
        )
        record = f"{int(started.stdout)} {component.command[0]}\n"
        (self.pids / f"{component.name}.pid").write_text(record)

    def end(self, name: str) -> None:
        """End a component, if it runs, and remove the file with its PID.

        Raises:
            TimeoutError: the component does not end.
        """
        record = self.pids / f"{name}.pid"
        if self.is_running(name):
            pid = record.read_text().split()[0]
            subprocess.run(self.holder.enter("kill", pid), check=False)  # it may just have ended
            wait_until(
                f"{name} to end",
                lambda: f"its process {pid} runs" if self.is_running(name) else None,
                timeout_seconds=END_SECONDS,
            )
        record.unlink(missing_ok=True)

    def is_running(self, name: str) -> bool:
        """Whether the component that was started as `name` still runs."""
        record = self.pids / f"{name}.pid"
        if not record.exists():
            return False
        pid, program = record.read_text().split(maxsplit=1)
        try:
            command = self.holder.inside(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
        # Between the shell's fork and its exec of the program, the process has no command line.
        expected = (program.strip().encode() + b"\0", b"setsid\0", b"sh\0")
        return not command or command.startswith(expected)

    def program(self, name: str) -> str | None:
        """The path of a running component's program; None if the component does not run."""
        if not self.is_running(name):
            return None
        return (self.pids / f"{name}.pid").read_text().split(maxsplit=1)[1].strip()

    def require_running(self, names: Iterable[str]) -> None:
        """Raise ComponentEndedError for the first of `names` that has ended."""
        for name in names:
            if not self.is_running(name):
                tail = self.tail(name)
                raise ComponentEndedError(
                    f"{name} has ended; the last lines of {self.log(name)}:\n{tail}{advice(tail)}"
                )

    def log(self, name: str) -> Path:
        """The component's log file."""
        return self.logs / f"{name}.log"

    def tail(self, name: str) -> str:
        """The last lines of the component's log."""
        log = self.log(name)
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return "\n".join(lines[-TAIL_LINES:])
