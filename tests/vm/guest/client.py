"""Machines that mount from the server: namespaces of the guest, each with a link of its own.

The guest's kernel has an NFS client for each network namespace, with its own name, lease and
caches. The client's name is the host name, so each machine has a UTS namespace too. All machines
share the kernel: one of them cannot crash alone, but its link can be cut, and its processes can be
killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tests.vm.guest.programs import run

USER_ID = 1000  # user and group of the project's pods
MOUNT_POINT = Path("/data")
NAMESPACES = {"net": 0x40000000, "uts": 0x04000000, "mnt": 0x00020000}
RUNNING = set[int]()
"""The PIDs of all tasks for which nothing has waited yet."""
_LIBC = ctypes.CDLL(None, use_errno=True)


class Client:
    """A machine that is linked to the server.

    Args:
        name: the host name of the machine.
        number: a number from 1 to 254 that no other machine has.
    """

    def __init__(self, name: str, number: int) -> None:
        self.name, self._link = name, f"to-{name}"
        server, own = f"10.98.{number}.1", f"10.98.{number}.2"
        self.server, self.address = server, own
        ready, go_on = os.pipe(), os.pipe()
        self._holder = os.fork()
        if self._holder == 0:
            _be_a_machine(name, ready[1], go_on[0])
        os.read(ready[0], 1)
        peer = ("peer", "name", "eth0", "netns", str(self._holder))
        run("ip", "link", "add", self._link, "type", "veth", *peer)
        run("ip", "address", "add", f"{server}/24", "dev", self._link)
        self.set_link("up")
        os.write(go_on[1], b"x")
        self._inside("ip", "address", "add", f"{own}/24", "dev", "eth0")
        self._inside("ip", "link", "set", "eth0", "up")
        self._inside("ip", "route", "add", "default", "via", server)
        MOUNT_POINT.mkdir(exist_ok=True)

    def mount(self, exported: Path, options: str, server: str = "") -> None:
        """Mount a folder of the server at /data.

        Args:
            exported: the folder of the server.
            options: the options of mount.nfs, with commas between them.
            server: another address of the server; empty: its address on the link.
        """
        source = f"{server or self.server}:{exported}"
        self._inside("mount.nfs", source, str(MOUNT_POINT), "-o", options)

    def unmount(self) -> None:
        """Unmount /data, whether the server still answers or not."""
        self._inside("umount", "-l", str(MOUNT_POINT))

    def set_link(self, state: str) -> None:
        """Set the link to `up`, or to `down`, so that no packet reaches or leaves the machine."""
        run("ip", "link", "set", self._link, state)

    def mounted(self) -> str:
        """Return the kernel's line about the mount, with all options."""
        mounts = Path(f"/proc/{self._holder}/mounts").read_text().splitlines()
        (line,) = [line for line in mounts if line.split()[1] == str(MOUNT_POINT)]
        return line

    def start(self, work: Callable[..., None], *words: Any) -> Task:
        """Run `work(tell, should_stop, *words)` on the machine, as the project's pods' user."""
        return Task(lambda: self._enter(USER_ID), work, words)

    def _inside(self, *command: str) -> None:
        task = Task(lambda: self._enter(0), _run, command)
        task.end()

    def _enter(self, user_id: int) -> None:
        for name, kind in NAMESPACES.items():
            descriptor = os.open(f"/proc/{self._holder}/ns/{name}", os.O_RDONLY)
            _check(_LIBC.setns(descriptor, kind))
            os.close(descriptor)
        os.chdir("/")
        if user_id:
            os.setgroups([])
            os.setgid(user_id)
            os.setuid(user_id)


def end_all() -> None:
    """Kill the tasks that a failed story has left."""
    for pid in [*RUNNING]:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        RUNNING.discard(pid)


class Task:
    """A process that sends values, until it ends or is asked to stop."""

    def __init__(
        self, enter: Callable[[], None], work: Callable[..., None], words: tuple[Any, ...]
    ) -> None:
        told, asked = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(asked[1])
            _work(enter, work, words, told[1], asked[0])
        os.close(told[1])
        os.close(asked[0])
        self._lines, self._stop = os.fdopen(told[0]), asked[1]
        RUNNING.add(self.pid)

    def told(self) -> Any:
        """Return the next value. Raise RuntimeError if the process has ended or failed."""
        line = self._lines.readline()
        if not line:
            raise RuntimeError(f"it has ended with {self.wait()} and told nothing")
        value = json.loads(line)
        if isinstance(value, dict) and "traceback" in value:
            raise RuntimeError(value["traceback"])
        return value

    def rest(self) -> list[Any]:
        """Return all further values until the end of the process."""
        values = list[Any]()
        while line := self._lines.readline():
            values.append(json.loads(line))
            if isinstance(values[-1], dict) and "traceback" in values[-1]:
                raise RuntimeError(values[-1]["traceback"])
        return values

    def stop(self) -> list[Any]:
        """Ask the process to stop, and return its values until its end."""
        # Other processes may have this end of the pipe open, so closing it would not be enough.
        os.write(self._stop, b"x")
        return self.end_of_any_kind()

    def end(self) -> list[Any]:
        """Wait until the process ends by itself, and return its values until then.

        Raises:
            RuntimeError: the process failed.
        """
        values = self.rest()
        self._close()
        if code := self.wait():
            raise RuntimeError(f"it has ended with {code}")
        return values

    def end_of_any_kind(self) -> list[Any]:
        """Wait for the end of the process, which may have been killed; return its values."""
        values = self.rest()
        self._close()
        self.wait()
        return values

    def _close(self) -> None:
        os.close(self._stop)
        self._lines.close()

    def wait(self) -> int:
        """Wait for the process, and return its exit status; a signal's number is negative."""
        status = os.waitpid(self.pid, 0)[1]
        RUNNING.discard(self.pid)
        return os.waitstatus_to_exitcode(status)


def _work(
    enter: Callable[[], None],
    work: Callable[..., None],
    words: tuple[Any, ...],
    told: int,
    asked: int,
) -> NoReturn:
    code = 1
    try:
        with os.fdopen(told, "w", buffering=1) as lines:

            def tell(value: Any) -> None:
                lines.write(json.dumps(value) + "\n")

            try:
                enter()
                work(tell, lambda: bool(select.select([asked], [], [], 0)[0]), *words)
                code = 0
            except BaseException:
                tell({"traceback": traceback.format_exc()})
    finally:
        sys.stdout.flush()
        os._exit(code)


def _run(_tell: Any, _should_stop: Any, *command: str) -> None:
    run(*command)


def _be_a_machine(name: str, ready: int, go_on: int) -> NoReturn:
    """Make the namespaces of a machine, and keep them."""
    try:
        _check(_LIBC.unshare(sum(NAMESPACES.values())))
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        Path("/proc/sys/kernel/hostname").write_text(name)
        os.write(ready, b"x")
        os.read(go_on, 1)
        while True:
            time.sleep(3600)
    finally:
        os._exit(1)


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
