"""Checks of the host's disks: free space, inodes, read-only mounts, and the data folder."""

from cli.check import Check, Fault, error, only_for_own_k3s, warning
from cli.facts import Facts, NotSeenError
from infra.node.expectations import GIB, Expectations

# The free space that is wanted, and the least, below which it is an error instead of a warning. The
# disk of containerd holds the image of 6 GB packed and unpacked.
IMAGE_GIB, LEAST_IMAGE_GIB = 30, 15
DATA_GIB, LEAST_DATA_GIB = 10, 1
TMP_GIB, LEAST_TMP_GIB = 4, 0.2  # an image of 6 GB is sent as 3.4 GB; often nothing has to be sent
PROGRAMS_MIB = 512  # k3s-install.sh needs it: during an upgrade there are two binaries of k3s
SETTINGS_MIB = 1
LEAST_INODES = 50_000


def disk_data(facts: Facts, _: Expectations) -> Fault | str:
    """The disk of dataRoot has room for data sets and checkpoints."""
    return _room(
        facts,
        "data",
        DATA_GIB,
        LEAST_DATA_GIB,
        "free some space, or set dataRoot to a folder on a larger disk",
    )


def disk_containerd(facts: Facts, _: Expectations) -> Fault | str:
    """The disk of containerd has room for the trainer image."""
    fix = "free some space, or mount a larger disk at /var/lib/rancher before k3s is installed"
    return _room(facts, "containerd", IMAGE_GIB, LEAST_IMAGE_GIB, fix)


def disk_tmp(facts: Facts, _: Expectations) -> Fault | str:
    """The folder /var/tmp has room for what is sent or built there, such as the trainer image."""
    fix = "free some space, or mount a larger disk at /var/tmp"
    return _room(facts, "tmp", TMP_GIB, LEAST_TMP_GIB, fix)


def disk_system(facts: Facts, expect: Expectations) -> Fault | str:
    """The folders of k3s' binary and settings are writable and have room."""
    only_for_own_k3s(expect)
    for name, least_mib in (("programs", PROGRAMS_MIB), ("settings", SETTINGS_MIB)):
        path, _fs, _size, free, *_, mode = _disk(facts, name)
        if mode == "ro":
            return error(f"{path} is on a read-only mount", "remount it with the option rw")
        if free.isdigit() and int(free) < least_mib * 1024:
            return error(
                f"{path}: {int(free) // 1024} MiB free, {least_mib} MiB wanted",
                "free some space there",
            )
    return "there is room for k3s' binary and settings"


def inodes(facts: Facts, _: Expectations) -> Fault | str:
    """The disks have inodes left; without them no file can be made, even with free space."""
    few: list[str] = []
    for name in ("data", "containerd", "tmp"):
        path, _fs, _size, _free, total, free, _mode = _disk(facts, name)
        if (
            total.isdigit() and int(total) and int(free) < LEAST_INODES
        ):  # btrfs does not count inodes
            few.append(f"{path}: {free} inodes left")
    if few:
        return error(
            "; ".join(few), "remove small files there (`df -i` shows how many inodes are used)"
        )
    return "enough"


def data_root(facts: Facts, expect: Expectations) -> Fault | str:
    """The data folder is absent or a real folder, on a disk that keeps its content."""
    kind, (_path, filesystem, *_, mode) = facts.one("data_root"), _disk(facts, "data")
    if kind in ("file", "link"):
        return error(f"{expect.data_root} is a {kind}", "set dataRoot to a folder")
    if mode == "ro":
        return error(
            f"{expect.data_root} is on a read-only mount",
            "remount it with the option rw, or set dataRoot",
        )
    if filesystem in ("tmpfs", "ramfs"):
        return warning(
            f"{expect.data_root} is in memory ({filesystem}) and is lost at the next boot",
            "set dataRoot to a folder on a disk",
        )
    return f"{kind}, {filesystem}"


def _disk(facts: Facts, name: str) -> list[str]:
    facts.one(f"disk.{name}")
    return facts.rows(f"disk.{name}", 7)[-1]


def _room(facts: Facts, name: str, wanted: float, least: float, fix: str) -> Fault | str:
    path, _, _, free, *_ = _disk(facts, name)
    if not free.isdigit():
        raise NotSeenError(f"df does not tell how much is free at {path}")
    gib = int(free) / GIB
    if gib < wanted:
        return (error if gib < least else warning)(
            f"{path}: {gib:.1f} GiB free, {wanted} GiB wanted", fix
        )
    return f"{path}: {gib:.0f} GiB free"


DISK_CHECKS = (
    Check("disk-data", disk_data),
    Check("disk-containerd", disk_containerd),
    Check("disk-tmp", disk_tmp),
    Check("disk-system", disk_system),
    Check("inodes", inodes),
    Check("data-root", data_root),
)
