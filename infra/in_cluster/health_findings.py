"""What is wrong with a machine, from what its kernel, its driver and its disks say. Pure.

docs/operations.md has the same list for people. A finding makes a machine unusable only where a
training cannot go on there or would lose data; whatever mends itself, or is the fault of a program,
is said at most. The file goes into a pod as it is.
"""

import errno
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from infra.in_cluster.xids import OF_PROGRAMS, OF_THE_GPU, meaning_of

HANGS = 124  # as the command `timeout` reports it
INFO_ROM = 14  # exit status of nvidia-smi: the infoROM is corrupted; the GPU works on
LEAST_FREE_SHARE = 0.05
CLOCK_SECONDS = 10.0
CLOCK_WORDS = "the clock is"
_LONGEST_TEXT = 300


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Args:
        key: the same as long as it is the same fault; another one when it happens again.
        text: a sentence without a full stop.
        is_unusable: whether no training should run on the machine.
    """

    key: str
    text: str
    is_unusable: bool = False

    def accepted(self) -> "Finding":
        """This finding, once somebody has said that the machine is good enough with it."""
        return replace(self, text=f"{self.text} (accepted by uncordon)", is_unusable=False)


@dataclass(frozen=True)
class KernelFault:
    """A line of the kernel's log that means a fault.

    Args:
        id: its name.
        pattern: what to look for; the group `device` says what is at fault.
        text: a sentence, with `{device}`.
        is_unusable: whether no training should run on the machine after it.
    """

    id: str
    pattern: str
    text: str
    is_unusable: bool


# Images, floppy disks and memory are no disks of the machine.
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
    """What has come since `last` was the newest line; all where that one is gone.

    Lines begin with their time, so no two of them are alike.
    """
    for place in range(len(lines) - 1, -1, -1):
        if lines[place] == last:
            return lines[place + 1 :]
    return lines


def kernel_findings(lines: Iterable[str], old: Collection[str]) -> list[Finding]:
    """The newest fault of each kind and device.

    Args:
        lines: the kernel's log, such as `<3>[ 12.3] NVRM: Xid (PCI:0000:3b:00): 79, ...`.
        old: lines that were there before the look-out began: what they tell of may have been
            mended since, so they make no machine unusable.
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
    """Kind and device, text, and whether the machine is unusable; None: it is no fault."""
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
    """What nvidia-smi has answered.

    Args:
        status: how it ended; HANGS: it did not.
        gpus: a line for each GPU: address on the bus, errors of memory that were not corrected.
        rows: a line for each GPU: address, whether rows wait to be remapped, whether that failed.
            Older GPUs know nothing of it.
    """

    status: int
    gpus: str
    rows: str = ""

    @property
    def addresses(self) -> list[str]:
        """Addresses on the bus of the GPUs that it shows; none where it has failed."""
        return [cells[0] for cells in _cells(self.gpus)] if self.status == 0 else []


def smi_findings(smi: Smi, known: Collection[str]) -> list[Finding]:
    """What is wrong with the GPUs.

    Args:
        smi: the answer.
        known: addresses of all GPUs that it has ever shown.
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
    """Ports of InfiniBand, RoCE or EFA that were active and are not any more.

    A port that never was is a free one. Trainings over TCP go on without.

    Args:
        states: such as `4: ACTIVE`, by device and port.
        known: ports that have been active.
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
    """What is wrong with a disk that pods of the machine need.

    The kubelet itself keeps pods away from a full disk.

    Args:
        folder: what it is for, such as `the kubelet's disk`.
        free_share: of its room, from 0 to 1.
        error: number of the error of a write; 0: there was none.
    """
    if error and error != errno.ENOSPC:
        text = f"{folder} cannot be written: {os.strerror(error)}"
        return [Finding(f"disk {folder} {error}", text, True)]
    if error or free_share < LEAST_FREE_SHARE:
        return [Finding(f"full {folder}", f"{folder} is full: {free_share:.0%} of it is free")]
    return []


def clock_findings(ahead_seconds: float | None) -> list[Finding]:
    """The clock of the machine against that of the API server; None: not known."""
    if ahead_seconds is None or abs(ahead_seconds) <= CLOCK_SECONDS:
        return []
    way = "ahead of" if ahead_seconds > 0 else "behind"
    return [Finding("clock", f"{CLOCK_WORDS} {abs(ahead_seconds):.0f} s {way} the API server's")]
