"""Reads the health of a machine from the kernel's log, nvidia-smi, network links and disks.

The functions do not wait for nvidia-smi, which may hang. The file goes into a pod unchanged.
"""

import ctypes
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from infra.in_cluster.health_findings import HANGS, Smi, is_active

# https://man7.org/linux/man-pages/man2/syslog.2.html
_READ_ALL, _SIZE = 3, 10
SMI = (
    (
        "nvidia-smi",
        "--query-gpu=pci.bus_id,ecc.errors.uncorrected.volatile.total",
        "--format=csv,noheader",
    ),
    (
        "nvidia-smi",
        "--query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure",
        "--format=csv,noheader",
    ),
)
LINKS = Path("/sys/class/infiniband")


def kernel_lines(file: Path | None) -> list[str]:
    """The lines of the kernel's log that the kernel still has.

    Args:
        file: a file that is read instead of the kernel's log; None for the kernel's log.

    Raises:
        OSError: The log cannot be read, for example because the pod lacks the capability.
    """
    if file is not None:
        return file.read_text(errors="replace").splitlines()
    system = ctypes.CDLL(None, use_errno=True)
    size = _checked(system.klogctl(_SIZE, None, 0))
    content = ctypes.create_string_buffer(size)
    length = _checked(system.klogctl(_READ_ALL, content, size))
    return content.raw[:length].decode(errors="replace").splitlines()


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class SmiWatch:
    """Runs nvidia-smi again and again, and never waits for it."""

    def __init__(self, limit_seconds: float, pause_seconds: float) -> None:
        """Start no program yet.

        Args:
            limit_seconds: a program that takes longer counts as hanging, and is killed.
            pause_seconds: the least time from the start of one program to the start of the next
                round.
        """
        self._limit_seconds, self._pause_seconds = limit_seconds, pause_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._output = os.fdopen(os.memfd_create("nvidia-smi"), "w+b")  # needs no disk
        self._question, self._began, self._next, self._gpus = 0, 0.0, 0.0, ""
        self._answer: Smi | None = None
        self._was_killed = False

    def poll(self, now_seconds: float) -> Smi | None:
        """The newest answer; None if there is no nvidia-smi, or no answer yet."""
        if self._process is None:
            if now_seconds >= self._next:
                self._ask(now_seconds)
            return self._answer
        status = self._process.poll()
        if status is not None:
            self._take(status, now_seconds)
        elif now_seconds - self._began > self._limit_seconds:
            # A process that hangs in the driver may not even end by SIGKILL. No other one is
            # started before it has ended.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._was_killed = True
            self._answer = Smi(HANGS, "")
        return self._answer

    def close(self) -> None:
        """Stop. A program that still runs is left running."""
        self._output.close()

    def _ask(self, now_seconds: float) -> None:
        self._began, self._next = now_seconds, now_seconds + self._pause_seconds
        self._was_killed = False
        self._output.seek(0)
        self._output.truncate()
        try:
            self._process = subprocess.Popen(
                SMI[self._question],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError:  # there is no nvidia-smi
            self._answer = None

    def _take(self, status: int, now_seconds: float) -> None:
        self._process = None
        self._output.seek(0)
        said = self._output.read().decode(errors="replace")
        if self._question == 0 and status == 0:
            self._gpus, self._question = said, 1
            self._ask(now_seconds)
            return
        if self._question == 1 and not self._was_killed:  # older GPUs refuse the second question
            self._answer = Smi(0, self._gpus, said if status == 0 else "")
        else:
            self._answer = Smi(HANGS if self._was_killed else status, said)
        self._question = 0


def link_states(folder: Path = LINKS) -> dict[str, str]:
    """The state of each port of InfiniBand, RoCE and EFA devices, by `<device>/<port>`."""
    found = dict[str, str]()
    for path in sorted(folder.glob("*/ports/*/state")):
        try:
            found[f"{path.parts[-4]}/{path.parts[-2]}"] = path.read_text().strip()
        except OSError:  # the device is being removed at this moment
            continue
    return found


def active_links(states: dict[str, str]) -> set[str]:
    """The ports that have a link."""
    return {port for port, state in states.items() if is_active(state)}


def disk_state(folder: Path) -> tuple[float, int]:
    """The free share of a disk, from 0 to 1, and the errno of a trial write; 0 if it worked."""
    try:
        facts = os.statvfs(folder)
        free = facts.f_bavail / facts.f_blocks if facts.f_blocks else 1.0
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"a sign of life")
            file.flush()  # no fsync, which may take minutes while a checkpoint is written
    except OSError as error:
        return 1.0, error.errno or 0
    return free, 0
