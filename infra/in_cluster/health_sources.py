"""Where a machine's health is read: kernel, nvidia-smi, links and disks.

Nothing here waits for long: a program that hangs is left behind. The file goes into a pod as it is.
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


def kernel_lines(file: Path | None = None) -> list[str]:
    """The kernel's log since the machine was started, as far as the kernel has kept it.

    Args:
        file: another place to read such lines from; None: the kernel itself.

    Raises:
        OSError: the log may not be read.
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
    """Asks nvidia-smi again and again, and never waits for it."""

    def __init__(self, limit_seconds: float, pause_seconds: float) -> None:
        """`limit_seconds`: what takes longer hangs; `pause_seconds`: from one answer to the next
        question."""
        self._limit_seconds, self._pause_seconds = limit_seconds, pause_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._output = os.fdopen(os.memfd_create("nvidia-smi"), "w+b")  # needs no disk
        self._question, self._began, self._next, self._gpus = 0, 0.0, 0.0, ""
        self._answer: Smi | None = None

    def poll(self, now_seconds: float) -> Smi | None:
        """The newest answer; None where there is no nvidia-smi, or no answer yet."""
        if self._process is None:
            if now_seconds >= self._next:
                self._ask(now_seconds)
            return self._answer
        status = self._process.poll()
        if status is not None:
            self._take(status, now_seconds)
        elif now_seconds - self._began > self._limit_seconds:
            # It may not end by this either; until it has ended, no other one is started.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._answer = Smi(HANGS, "")
        return self._answer

    def close(self) -> None:
        """Ask no more; what hangs is left behind."""
        self._output.close()

    def _ask(self, now_seconds: float) -> None:
        self._began, self._next = now_seconds, now_seconds + self._pause_seconds
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
        except OSError:  # there is none
            self._answer = None

    def _take(self, status: int, now_seconds: float) -> None:
        self._process = None
        self._output.seek(0)
        said = self._output.read().decode(errors="replace")
        was_killed = now_seconds - self._began > self._limit_seconds
        if self._question == 0 and status == 0:
            self._gpus, self._question = said, 1
            self._ask(now_seconds)
            return
        if self._question == 1 and not was_killed:  # older GPUs know nothing of the second question
            self._answer = Smi(0, self._gpus, said if status == 0 else "")
        else:
            self._answer = Smi(HANGS if was_killed else status, said)
        self._question = 0


def link_states(folder: Path = LINKS) -> dict[str, str]:
    """State of each port of InfiniBand, RoCE and EFA devices, by device and port."""
    found = dict[str, str]()
    for path in sorted(folder.glob("*/ports/*/state")):
        try:
            found[f"{path.parts[-4]}/{path.parts[-2]}"] = path.read_text().strip()
        except OSError:  # it goes away at this moment
            continue
    return found


def active_links(states: dict[str, str]) -> set[str]:
    """The ports that have a link."""
    return {port for port, state in states.items() if is_active(state)}


def disk_state(folder: Path) -> tuple[float, int]:
    """Share of the room that is free, and the number of the error of a write; 0: there was none."""
    try:
        facts = os.statvfs(folder)
        free = facts.f_bavail / facts.f_blocks if facts.f_blocks else 1.0
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"a sign of life")
            file.flush()  # and no fsync, which may take minutes while a checkpoint is written
    except OSError as error:
        return 1.0, error.errno or 0
    return free, 0
