"""Checks of the host's GPUs: the devices, the driver and the container toolkit."""

import re

from cli.check import SMI_SECONDS, Check, Fault, error, skip_unless, version_tuple, warning
from cli.doctor.host_checks import FAMILIES
from cli.facts import Facts, NotSeenError
from infra.in_cluster.xids import OF_THE_GPU, meaning_of
from infra.node.expectations import Expectations

# The oldest driver for each major version of CUDA. It also runs programs that are built for a later
# minor version (minor version compatibility): https://docs.nvidia.com/deploy/cuda-compatibility/
OLDEST_DRIVER = {11: (450, 80), 12: (525, 60), 13: (580, 0)}
OLDEST_BUILD = 11  # the oldest CUDA for which torch is built: cu118
# Blackwell has PCI device ids from 0x2900 on (B200 is 0x2901), and no earlier GPU has. Its first
# driver is 570, and torch has code for it only in builds for CUDA 12.8 and later (docs/image.md).
BLACKWELL_FIRST_ID = 0x2900
BLACKWELL_DRIVER = (570, 0)
BLACKWELL_CUDA = (12, 8)
INFO_ROM = 14  # nvidia-smi's exit status if the infoROM of a GPU is corrupted
ENDED_BY_LIMIT = ("124", "137")  # exit statuses of `timeout`: after SIGTERM, and after SIGKILL
# Families of systems for which NVIDIA publishes a driver container, as the page "Platform Support"
# of the GPU Operator says.
DRIVER_CONTAINER = ("Debian", "RHEL")


def gpu_device(facts: Facts, expect: Expectations) -> Fault | str:
    """The PCI bus has as many NVIDIA GPUs as the training asks for."""
    gpus_wanted(expect)
    found = facts.all("gpu_pci")
    if expect.several:  # the check gpus-of-all counts them
        return f"{len(found)} NVIDIA GPUs"
    if not found:
        return error(
            f"there is no NVIDIA GPU on the PCI bus; {expect.gpus} asked for",
            "use a host with GPUs, or train on CPU: pulumi config set accelerator cpu",
        )
    if len(found) < expect.gpus:
        return error(
            f"there are {len(found)} NVIDIA GPUs on the PCI bus; {expect.gpus} asked for",
            f"pulumi config set gpus {len(found)}, with gpusPerPod and pods to match",
        )
    return f"{len(found)} NVIDIA GPUs"


def gpu_driver(facts: Facts, expect: Expectations) -> Fault | str:
    """NVIDIA's kernel driver is loaded, unless the GPU Operator installs it."""
    _with_device(facts, expect)
    version = facts.get("driver")
    if version:
        return version
    if expect.operator and expect.operator_driver:
        return "not loaded; the GPU Operator installs it"
    return error(
        "the NVIDIA kernel driver is not loaded",
        "install the driver and reboot, or run: pulumi config set gpuOperatorDriver true",
    )


def gpu_driver_version(facts: Facts, expect: Expectations) -> Fault | str:
    """The driver is new enough for the CUDA that torch is built for, and for the GPUs."""
    _with_driver(facts, expect)
    version, major = facts.one("driver"), version_tuple(expect.cuda)[0]
    floors = {f"CUDA {expect.cuda}": OLDEST_DRIVER.get(major, (0, 0))}
    if _has_blackwell(facts):
        floors["a Blackwell GPU"] = BLACKWELL_DRIVER
    needed_by, floor = max(floors.items(), key=lambda entry: entry[1])
    if version_tuple(version)[:2] < floor:
        # A Blackwell GPU has no build for CUDA 11.8 (see gpu_generation).
        older = major > OLDEST_BUILD and not _has_blackwell(facts)
        is_enough = older and version_tuple(version)[:2] >= OLDEST_DRIVER[OLDEST_BUILD]
        return error(
            f"driver {version} is older than {floor[0]}.{floor[1]}, which {needed_by} needs",
            "update the driver" + (", or set torchIndexUrl to .../cu118" if is_enough else ""),
        )
    return f"{version}, for CUDA {expect.cuda}"


def gpu_generation(facts: Facts, expect: Expectations) -> Fault | str:
    """The CUDA build of torch has code for the generation of the host's GPUs."""
    _with_device(facts, expect)
    if _has_blackwell(facts) and version_tuple(expect.cuda) < BLACKWELL_CUDA:
        return error(
            f"a GPU of this host is a Blackwell or newer, for which torch built for CUDA "
            f"{expect.cuda} has no code",
            "pulumi config set torchIndexUrl https://download.pytorch.org/whl/cu128",
        )
    return f"torch for CUDA {expect.cuda} has code for the GPUs"


def nouveau(facts: Facts, expect: Expectations) -> Fault | str:
    """The free driver nouveau is not loaded; it would block NVIDIA's driver."""
    _with_device(facts, expect)
    if facts.one("nouveau") == "loaded":
        return error(
            "the driver nouveau is loaded and holds the GPUs",
            "echo 'blacklist nouveau' >/etc/modprobe.d/nouveau.conf, rebuild the initrd, reboot",
        )
    return "not loaded"


def nvidia_smi(facts: Facts, expect: Expectations) -> Fault | str:
    """The command nvidia-smi works and shows every GPU, as the operator's validator demands."""
    _with_driver(facts, expect)
    status = facts.one("nvidia_smi")
    if status == "absent":
        return error("nvidia-smi is missing", "install nvidia-utils of the driver's version")
    if status in ENDED_BY_LIMIT:
        return error(
            f"nvidia-smi gave no answer in {SMI_SECONDS} s",
            "systemctl enable --now nvidia-persistenced (without persistence mode the driver "
            "starts each GPU anew each time); if that does not help, look for Xid lines in dmesg, "
            "and reboot",
        )
    if status == str(INFO_ROM):
        return error(
            "nvidia-smi ends with 14: the infoROM of a GPU is corrupted",
            "have the GPU replaced; with it the operator's validator pod never becomes ready",
        )
    if status != "0":
        return error(
            f"nvidia-smi ends with {status}: {facts.get('nvidia_smi_says')}",
            "reboot if the driver was updated; otherwise install the driver again",
        )
    gpus, devices = facts.all("gpu"), len(facts.all("gpu_pci"))
    if len(gpus) < devices:
        return error(
            f"nvidia-smi shows {len(gpus)} GPUs of {devices} on the PCI bus",
            "look for Xid lines in dmesg: a GPU has fallen off the bus",
        )
    return "; ".join(sorted({gpu.split(",")[0] for gpu in gpus})) + f" x {len(gpus)}"


def gpu_errors(facts: Facts, expect: Expectations) -> Fault | str:
    """Since the boot, no GPU has reported an error that programs cannot cause."""
    _with_driver(facts, expect)
    xids = [(gpu, int(number), count) for gpu, number, count in facts.rows("xid", 3)]
    for gpu, number, count in xids:
        if number in OF_THE_GPU:
            return error(
                f"GPU {gpu} has reported Xid {number} {count} times: {meaning_of(number)}",
                "end what runs on it; nvidia-smi --gpu-reset, or restart the machine",
            )
    for row in facts.all("gpu_rows"):
        gpu, pending, failure = [*(cell.strip() for cell in row.split(",")), "", ""][:3]
        if failure in ("1", "Yes"):
            return error(
                f"GPU {gpu} has faulty rows of memory and no spare ones left for them",
                "have the GPU replaced",
            )
        if pending in ("1", "Yes"):
            return warning(
                f"GPU {gpu} will replace a faulty row of its memory at its next reset",
                "nvidia-smi --gpu-reset when no program runs on it",
            )
    for row in facts.all("gpu_ecc"):
        gpu, _, errors = row.partition(",")
        if errors.strip().isdigit() and int(errors):
            return warning(
                f"GPU {gpu.strip()} has had {errors.strip()} errors of its memory that ECC could "
                "not correct",
                "nvidia-smi --gpu-reset when no program runs on it",
            )
    if not xids:
        return "none"
    told = ", ".join(f"Xid {number} of GPU {gpu} x {count}" for gpu, number, count in xids)
    return f"{told}: mostly the programs' own faults"


def gpu_mig(facts: Facts, expect: Expectations) -> Fault | str:
    """No GPU is in MIG mode unless a MIG profile is set; it would offer only slices."""
    _with_driver(facts, expect)
    modes = [gpu.split(",")[1].strip() for gpu in facts.all("gpu") if "," in gpu]
    if not modes:
        raise NotSeenError("nvidia-smi did not report the MIG mode; see nvidia-smi")
    on = modes.count("Enabled")
    if on and not expect.mig:
        return error(
            f"MIG mode is on for {on} of {len(modes)} GPUs and no MIG profile is set",
            "nvidia-smi -mig 0 (as root, with no process on the GPU), or set migProfile",
        )
    return f"on for {on} of {len(modes)} GPUs"


def container_toolkit(facts: Facts, expect: Expectations) -> Fault | str:
    """NVIDIA's container toolkit is on the host, unless the GPU Operator installs it."""
    _with_device(facts, expect)
    path = facts.get("container_runtime")
    if not path and not (expect.operator and expect.operator_toolkit):
        return error(
            "nvidia-container-runtime is not on PATH",
            "install nvidia-container-toolkit, or set gpuOperatorToolkit: true",
        )
    return path or "not there; the GPU Operator installs it"


def operator_system(facts: Facts, expect: Expectations) -> Fault | str:
    """NVIDIA publishes a driver container for the host's system, if one is to be used."""
    gpus_wanted(expect)
    skip_unless(expect.operator and expect.operator_driver, "the host has its own driver")
    name = facts.one("os")
    words = f"{name} {facts.get('os_like')}".replace("-", " ").split()
    family = next((FAMILIES[word] for word in words if word in FAMILIES), "unknown")
    if family not in DRIVER_CONTAINER or name == "debian":
        return error(
            f"NVIDIA publishes no driver container for {name}",
            "install the driver on the host, and set gpuOperatorDriver: false",
        )
    return f"{name} {facts.get('os_version')}"


def gpus_wanted(expect: Expectations) -> None:
    """End the check as not applicable if the training uses no GPU."""
    skip_unless(expect.gpus, "the training uses no GPU")


def _with_device(facts: Facts, expect: Expectations) -> None:
    gpus_wanted(expect)
    if not facts.all("gpu_pci"):
        skip_unless(not expect.several, "this machine has no NVIDIA GPU; others may have them")
        raise NotSeenError("this host has no NVIDIA GPU; see gpu-device")


def _with_driver(facts: Facts, expect: Expectations) -> None:
    _with_device(facts, expect)
    if not facts.get("driver"):
        raise NotSeenError("no driver is loaded; see gpu-driver")


def _has_blackwell(facts: Facts) -> bool:
    """Whether a GPU of the host is a Blackwell or newer, by its PCI device id (`0x2901`)."""
    ids = [device.split()[-1] for device in facts.all("gpu_pci") if device.strip()]
    known = [int(text, 16) for text in ids if re.fullmatch(r"0x[0-9a-fA-F]{1,4}", text)]
    return any(number >= BLACKWELL_FIRST_ID for number in known)


GPU_CHECKS = (
    Check("gpu-device", gpu_device),
    Check("gpu-driver", gpu_driver),
    Check("gpu-driver-version", gpu_driver_version),
    Check("gpu-generation", gpu_generation),
    Check("nouveau", nouveau),
    Check("nvidia-smi", nvidia_smi, SMI_SECONDS),
    Check("gpu-errors", gpu_errors, SMI_SECONDS),
    Check("gpu-mig", gpu_mig, SMI_SECONDS),
    Check("container-toolkit", container_toolkit),
    Check("operator-system", operator_system),
)
