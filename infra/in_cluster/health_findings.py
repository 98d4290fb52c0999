"""Finds faults of a machine in what its kernel, its driver and its disks report.

All functions are pure. docs/operations.md has the same list for people. A finding makes a machine
unusable only if a training cannot continue there or would lose data. A problem that ends by itself,
or that a program has caused, is at most reported. The file goes into a pod unchanged.
"""

import errno
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from infra.in_cluster.xids import OF_PROGRAMS, OF_THE_GPU, meaning_of

HANGS = 124  # the exit status with which the command `timeout` reports a hanging program
INFO_ROM = 14  # exit status of nvidia-smi: the infoROM is corrupted, but the GPU works
LEAST_FREE_SHARE = 0.05
CLOCK_SECONDS = 10.0
CLOCK_WORDS = "the clock is"
_LONGEST_TEXT = 300


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Args:
        key: identifies the fault. If the fault happens again later, it has a different key.
        text: a sentence without a full stop.
        is_unusable: whether no training should run on the machine.
    """

    key: str
    text: str
    is_unusable: bool = False

    def accepted(self) -> "Finding":
        """This finding after a person has uncordoned the machine in spite of it."""
        return replace(self, text=f"{self.text} (accepted by uncordon)", is_unusable=False)


@dataclass(frozen=True)
class KernelFault:
    """A line of the kernel's log that means a fault.

    Args:
        id: the name of this kind of fault.
        pattern: the regular expression of the line. Its group `device` is the faulty device.
        text: a sentence with the placeholder `{device}`.
        is_unusable: whether no training should run on the machine after this fault.
    """

    id: str
    pattern: str
    text: str
    is_unusable: bool


# Image files (loop), floppy disks, CD drives and RAM disks are not counted as disks.
_DISK = r"(?P<device>(?!loop|fd\d|sr\d|zram|ram)[\w.-]+)"
XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<device>[^)]*)\): (?P<number>\d+)")
KERNEL_FAULTS = (
    KernelFault(
        "nvswitch",
        r"SXid \((?:PCI:)?(?P<device>[^)]*)\): \d+, Fatal",
        "NVSwitch {device} reported a fatal error (SXid); restart the machine",
        True,
    ),
    KernelFault(
        "read-only",
        rf"EXT4-fs \({_DISK}\): Remounting filesystem read-only",
        "the kernel made the file system on {device} read-only after an error of the disk",
        True,
    ),
    KernelFault(
        "read-only",
        rf"BTRFS \w+ \(device {_DISK}[^)]*\): forced readonly",
        "the kernel made the file system on {device} read-only after an error of the disk",
        True,
    ),
    KernelFault(
        "shut-down",
        rf"XFS \({_DISK}\): .*(?:Filesystem has been shut down|Shutting down filesystem)",
        "the kernel shut down the file system on {device} after an error of the disk",
        True,
    ),
    KernelFault(
        "disk-error",
        rf"(?:I/O error|critical medium error|critical target error), dev {_DISK}, sector",
        "disk {device} could not read or write a block",
        False,
    ),
    KernelFault(
        "memory",
        r"EDAC (?P<device>\w+): \d+ UE ",
        "the machine's memory has an error that ECC could not correct (controller {device})",
        False,
    ),
    KernelFault(
        "pcie",
        r"(?P<device>[0-9a-f]{4}:[0-9a-f:.]+): .*AER: Uncorrect(?:ed|able) \(Fatal\)",
        "PCIe device {device} reported a fatal error",
        False,
    ),
)
_PATTERNS = [(fault, re.compile(fault.pattern)) for fault in KERNEL_FAULTS]
_TIME = re.compile(r"\[\s*(\d+\.\d+)\]")


def fault_lines(lines: Iterable[str]) -> list[str]:
    """The lines of the kernel's log that mean a fault."""
    return [line for line in lines if _of_line(line) is not None]


def lines_after(lines: Sequence[str], last: str) -> Sequence[str]:
    """The lines after `last`; all lines if `last` is no longer among them.

    Lines begin with their time, so no two of them are equal. `time_findings` reports a log whose
    lines have no time.
    """
    for place in range(len(lines) - 1, -1, -1):
        if lines[place] == last:
            return lines[place + 1 :]
    return lines


def time_findings(lines: Sequence[str]) -> list[Finding]:
    """A finding if the newest line of the kernel's log has no time.

    A fault that happens again then writes the same line again, which counts as already seen.
    """
    if not lines or _TIME.search(lines[-1]):
        return []
    text = (
        "the kernel's log has no times, so errors that happen again are not seen; "
        "set the kernel's parameter printk.time=1"
    )
    return [Finding("kernel-times", text)]


def kernel_findings(lines: Iterable[str], old: Collection[str]) -> list[Finding]:
    """The newest fault of each kind and device.

    Args:
        lines: the kernel's log, such as `<3>[ 12.3] NVRM: Xid (PCI:0000:3b:00): 79, ...`.
        old: the lines that were in the log when this program started. Their faults may have been
            repaired since, so they do not make the machine unusable.
    """
    newest = dict[str, Finding]()
    for line in lines:
        found = _of_line(line)
        if found is None:
            continue
        key, text, is_unusable = found
        when = _TIME.search(line)
        at = f" at {when[1]} s" if when else ""
        if line in old:
            newest[key] = Finding(f"{key}{at}", f"{text} (before disttrain looked)")
        else:
            newest[key] = Finding(f"{key}{at}", text, is_unusable)
    return list(newest.values())


def _of_line(line: str) -> tuple[str, str, bool] | None:
    """Kind and device, text, and whether the machine is unusable; None if there is no fault."""
    if xid := XID.search(line):
        number, device = int(xid["number"]), xid["device"]
        if number in OF_PROGRAMS:
            return None
        text = f"GPU {device} reported Xid {number}: {meaning_of(number)}"
        return f"xid-{number} {device}", text, number in OF_THE_GPU
    for fault, pattern in _PATTERNS:
        if match := pattern.search(line):
            device = match["device"]
            return f"{fault.id} {device}", fault.text.format(device=device), fault.is_unusable
    return None


@dataclass(frozen=True)
class Smi:
    """The answer of nvidia-smi.

    Args:
        status: its exit status; HANGS if it did not end in time.
        gpus: a line for each GPU: its address on the bus, and the number of memory errors that were
            not corrected. If nvidia-smi has failed, its output.
        rows: a line for each GPU: its address, whether memory rows wait to be remapped, and whether
            remapping has failed. Empty for older GPUs, which do not report this.
    """

    status: int
    gpus: str
    rows: str = ""

    @property
    def addresses(self) -> list[str]:
        """The bus addresses of the GPUs that nvidia-smi shows; none if it has failed."""
        return [cells[0] for cells in _cells(self.gpus)] if self.status == 0 else []


def smi_findings(smi: Smi, known: Collection[str]) -> list[Finding]:
    """What is wrong with the GPUs.

    Args:
        smi: the answer of nvidia-smi.
        known: the addresses of all GPUs that nvidia-smi has shown since this program started.
    """
    if smi.status == HANGS:
        return [Finding("smi hangs", "nvidia-smi hangs; often only a reboot helps", True)]
    if smi.status == INFO_ROM:
        return [Finding("smi 14", "nvidia-smi ends with 14: the infoROM of a GPU is corrupted")]
    if smi.status != 0:
        says = " ".join(smi.gpus.split())[:_LONGEST_TEXT] or "nothing"
        text = f"nvidia-smi ends with {smi.status} and says: {says}"
        return [Finding(f"smi {smi.status}", text, True)]
    there = smi.addresses
    found = [
        Finding(f"gpu-gone {gpu}", f"nvidia-smi does not show GPU {gpu} any more", True)
        for gpu in sorted(set(known) - set(there))
    ]
    for gpu, errors, *_ in (cells for cells in _cells(smi.gpus) if len(cells) > 1):
        if errors.isdigit() and int(errors):
            text = f"GPU {gpu} has had {errors} errors of its memory that ECC could not correct"
            found.append(Finding(f"ecc {gpu} {errors}", text))
    for gpu, pending, failed in (cells for cells in _cells(smi.rows) if len(cells) == 3):
        if failed in ("1", "Yes"):
            text = f"GPU {gpu} could not replace a faulty row of its memory; have it replaced"
            found.append(Finding(f"rows {gpu}", text, True))
        elif pending in ("1", "Yes"):
            text = f"GPU {gpu} replaces a faulty row of its memory at its next reset"
            found.append(Finding(f"rows {gpu}", text))
    return found


def _cells(lines: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split(",")] for line in lines.splitlines() if line]


def link_findings(states: Mapping[str, str], known: Collection[str]) -> list[Finding]:
    """Ports of InfiniBand, RoCE or EFA that were active and no longer are.

    A port that was never active is not in use. Trainings over TCP continue without these ports, so
    such a finding does not make the machine unusable.

    Args:
        states: the state of each port, such as `4: ACTIVE`, by device and port.
        known: the ports that have been active since this program started.
    """
    return [
        Finding(f"link {port}", f"port {port} is not active any more ({states.get(port, 'gone')})")
        for port in sorted(known)
        if not is_active(states.get(port, ""))
    ]


def is_active(state: str) -> bool:
    """Whether a port's state, as the kernel writes it, means that it has a link."""
    return "ACTIVE" in state


def disk_findings(folder: str, free_share: float, error: int) -> list[Finding]:
    """What is wrong with a disk that the machine's pods need.

    A full disk does not make the machine unusable here, because the kubelet itself keeps pods away
    from it.

    Args:
        folder: the name of the disk in messages, such as `the kubelet's disk`.
        free_share: the free share of the disk, from 0 to 1.
        error: the errno of a trial write; 0 if it worked.
    """
    if error and error != errno.ENOSPC:
        text = f"{folder} cannot be written: {os.strerror(error)}"
        return [Finding(f"disk {folder} {error}", text, True)]
    if error or free_share < LEAST_FREE_SHARE:
        return [Finding(f"full {folder}", f"{folder} is full: {free_share:.0%} of it is free")]
    return []


def clock_findings(ahead_seconds: float | None) -> list[Finding]:
    """A finding if the machine's clock differs from the API server's by more than CLOCK_SECONDS.

    Args:
        ahead_seconds: how far the machine's clock is ahead; negative if it is behind, and None if
            this is not known.
    """
    if ahead_seconds is None or abs(ahead_seconds) <= CLOCK_SECONDS:
        return []
    way = "ahead of" if ahead_seconds > 0 else "behind"
    return [Finding("clock", f"{CLOCK_WORDS} {abs(ahead_seconds):.0f} s {way} the API server's")]
