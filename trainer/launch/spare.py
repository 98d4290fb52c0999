"""Spare processes: they import torch before they are needed, so that a restart is seconds faster.

The import takes 2 to 3 s of processor time, half of what a restart costs with a small model. So the
entrypoint starts one further process, a spare, for each of its ranks. The spare imports what a rank
needs and waits. When ranks have to be started, the spare becomes one. Its standard input is a
socket, by which the entrypoint sends it the rank's variables, standard input and output.

A spare touches no GPU before it has become a rank. It ends when the entrypoint closes the socket or
dies. If there is no spare, or if it has died, the rank is started from the beginning.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from trainer.launch.imports import without_garbage_collection
from trainer.launch.killing import kill
from trainer.launch.lifeline import started_by_entrypoint
from trainer.launch.local_ranks import Start, process_of
from trainer.launch.status_files import StatusFiles

SPARE_VARIABLE = "DISTTRAIN_SPARE"
# The names that `top` shows: of a spare before and after its import. A rank is named `rank-3`.
IMPORTS_NAME, WAITS_NAME = "spare-imports", "spare-waits"
NEEDED = (
    "trainer.launch.worker",
    "torch._dynamo",  # every optimiser of torch imports it
    "torch.distributed.checkpoint",
    "trainer.metrics.log",
    "trainer.parallel.sharding",
)
_LONGEST_MESSAGE_BYTES = 1 << 20
_STDIN, _STDOUT, _STDERR = 0, 1, 2


class Spares:
    """Starts ranks: from a spare if one waits, else from the beginning.

    Args:
        command: The program of a rank and its arguments.
        count: How many spares wait; 0 for none.
    """

    def __init__(self, command: Sequence[str], count: int) -> None:
        self._start, self._count = process_of(command), count
        self._waiting: list[_Spare] = []

    def prepare(self, environment: Mapping[str, str]) -> None:
        """Start the spares that are missing; `environment`: what all ranks have in common."""
        for spare in [spare for spare in self._waiting if not spare.is_alive()]:
            self._waiting.remove(spare)
            spare.end()
        for _ in range(self._count - len(self._waiting)):
            with suppress(OSError):  # no memory or process is left; the rank starts without a spare
                self._waiting.append(_Spare(self._start, environment))

    def pids(self) -> list[int]:
        """Return the process ids of the spares that wait."""
        return [spare.process.pid for spare in self._waiting]

    def start(
        self, environment: Mapping[str, str], stdin: int, output: int | None
    ) -> subprocess.Popen[bytes]:
        """Start a rank.

        Args:
            environment: All variables of the rank.
            stdin, output: The descriptors of open files of this process, for the rank's input and
                output. With `output` None, the rank prints where this process prints.

        Raises:
            OSError: no process can be started.
        """
        while self._waiting:
            spare = self._waiting.pop(0)
            if spare.become(environment, stdin, output):
                return spare.process
        return self._start(environment, stdin, output)

    def close(self) -> None:
        """End the spares that wait."""
        for spare in self._waiting:
            spare.end()
        self._waiting = []


class _Spare:
    """The entrypoint's side of one spare."""

    def __init__(self, start: Start, environment: Mapping[str, str]) -> None:
        self._environment = {**environment, SPARE_VARIABLE: "1"}
        self._channel, theirs = socket.socketpair()
        try:
            # What the spare prints during its import goes to this file. The rank prints it later.
            with theirs, tempfile.TemporaryFile() as output:
                self.process = start(self._environment, theirs.fileno(), output.fileno())
        except OSError:
            self._channel.close()
            raise

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def become(self, environment: Mapping[str, str], stdin: int, output: int | None) -> bool:
        """Make the spare a rank; return False if it has died instead."""
        changes = {
            **{name: None for name in self._environment if name not in environment},
            **{n: value for n, value in environment.items() if self._environment.get(n) != value},
        }
        streams = (stdin, *((output, output) if output is not None else (_STDOUT, _STDERR)))
        try:
            with self._channel as channel:
                text = json.dumps(changes).encode()
                socket.send_fds(channel, [text + b"\n"], streams)
        except OSError:  # it has died
            self.end()
            return False
        return self.is_alive()

    def end(self) -> None:
        self._channel.close()
        kill(self.process)  # it imports or waits, so killing it breaks nothing


def become_rank_when_needed() -> None:
    """Wait, if this process is a spare, until it becomes a rank; otherwise return at once.

    If the entrypoint ends before that, this process ends too.
    """
    if SPARE_VARIABLE in os.environ:
        _wait_to_be_a_rank()
    if started_by_entrypoint():
        _show_name(f"rank-{os.environ['RANK']}")


def import_what_is_needed() -> None:
    """Import everything that a rank imports sooner or later."""
    with without_garbage_collection():
        for module in NEEDED:
            importlib.import_module(module)


def _wait_to_be_a_rank() -> None:
    _show_name(IMPORTS_NAME)
    import_what_is_needed()
    _show_name(WAITS_NAME)
    with socket.socket(fileno=os.dup(_STDIN)) as channel:
        text, streams = b"", list[int]()
        while not text.endswith(b"\n"):
            part, more, _, _ = socket.recv_fds(channel, _LONGEST_MESSAGE_BYTES, 3)
            if not part:
                os._exit(0)
            text, streams = text + part, streams + list(more)
    changes: dict[str, str | None] = json.loads(text)
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    printed = _printed()
    for target, source in zip((_STDIN, _STDOUT, _STDERR), streams, strict=True):
        os.dup2(source, target)
        os.close(source)
    os.write(_STDOUT, printed)
    # This comes last, because an error in it must be printed where the rank prints. `./disttrain
    # shell` looks for the variables; /proc shows only those with which a process was started.
    told = {name: value for name, value in changes.items() if value is not None}
    StatusFiles().tell_variables(os.getpid(), told)


def _printed() -> bytes:
    """Return what this process has printed so far, to the file that is its standard output."""
    sys.stdout.flush()
    sys.stderr.flush()
    size = os.lseek(_STDOUT, 0, os.SEEK_CUR)
    return os.pread(_STDOUT, size, 0)


def _show_name(name: str) -> None:
    with suppress(OSError):  # not Linux
        Path("/proc/self/comm").write_text(name)
