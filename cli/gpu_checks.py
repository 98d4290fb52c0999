"""Checks of the host's GPUs: the devices, the driver, the container toolkit."""

from cli.check import Check, Fault, asked_for, error, version_tuple
from cli.facts import Facts, NotSeenError
from cli.host_checks import FAMILIES
from infra.expectations import Expectations

# Oldest driver for each CUDA major version, by minor version compatibility:
# https://docs.nvidia.com/deploy/cuda-compatibility/
OLDEST_DRIVER = {11: (450, 80), 12: (525, 60), 13: (580, 0)}
INFO_ROM = 14  # exit status of nvidia-smi: the infoROM is corrupted
# Families with a driver container of NVIDIA's (platform-support of the GPU Operator).
DRIVER_CONTAINER = ("Debian", "RHEL")


def gpu_device(facts: Facts, expect: Expectations) -> Fault | str:
    """The PCI bus shows what the settings count on."""
    _asked(expect)
    found = facts.all("gpu_pci")
    if not found:
        return error(
            f"no NVIDIA GPU on the PCI bus, {expect.gpus} asked for",
            "use a host with GPUs, or train on CPU: pulumi config set accelerator cpu",
        )
    if len(found) < expect.gpus:
        return error(
            f"{len(found)} NVIDIA GPUs on the PCI bus, {expect.gpus} asked for",
            f"pulumi config set gpus {len(found)}, with gpusPerPod and pods to match",
        )
    return f"{len(found)} NVIDIA GPUs"


def gpu_driver(facts: Facts, expect: Expectations) -> Fault | str:
    """Loaded, unless the operator brings it."""
    _with_device(facts, expect)
    version = facts.get("driver")
    if version:
        return version
    if expect.operator and expect.operator_driver:
        return "none; the GPU Operator installs it"
    return error(
        "the NVIDIA kernel driver is not loaded",
        "install the driver and reboot, or pulumi config set gpuOperatorDriver true",
    )


def gpu_driver_version(facts: Facts, expect: Expectations) -> Fault | str:
    """New enough for the CUDA that torch was built with."""
    _with_driver(facts, expect)
    version, major = facts.one("driver"), version_tuple(expect.cuda)[0]
    oldest = OLDEST_DRIVER.get(major)
    if oldest and version_tuple(version)[:2] < oldest:
        floor = ".".join(map(str, oldest))
        return error(
            f"driver {version} is older than {floor}, which CUDA {expect.cuda} needs",
            "update the driver, or take torch for an older CUDA (torchIndexUrl .../cu118)",
        )
    return f"{version}, for CUDA {expect.cuda}"


def nouveau(facts: Facts, expect: Expectations) -> Fault | str:
    """The free driver holds the device, so that NVIDIA's cannot."""
    _with_device(facts, expect)
    if facts.one("nouveau") == "loaded":
        return error(
            "the driver nouveau is loaded",
            "echo 'blacklist nouveau' >/etc/modprobe.d/nouveau.conf, rebuild the initrd, reboot",
        )
    return "not loaded"


def nvidia_smi(facts: Facts, expect: Expectations) -> Fault | str:
    """Driver and device talk; the operator's validator asks the same."""
    _with_driver(facts, expect)
    status = facts.one("nvidia_smi")
    if status == "absent":
        return error("nvidia-smi is missing", "install nvidia-utils of the driver's version")
    if status == "124":
        return error("nvidia-smi hangs", "look for Xid lines in dmesg; often only a reboot helps")
    if status == str(INFO_ROM):
        return error(
            "nvidia-smi ends with 14: the infoROM of a GPU is corrupted",
            "have the GPU replaced; NVIDIA's validator pod would wait for ever",
        )
    if status != "0":
        return error(
            f"nvidia-smi ends with {status}: {facts.get('nvidia_smi_says')}",
            "reboot after a driver update; else reinstall the driver",
        )
    gpus, devices = facts.all("gpu"), len(facts.all("gpu_pci"))
    if len(gpus) < devices:
        return error(
            f"nvidia-smi shows {len(gpus)} GPUs of {devices} on the PCI bus",
            "look for Xid lines in dmesg: a GPU has fallen off the bus",
        )
    return "; ".join(sorted({gpu.split(",")[0] for gpu in gpus})) + f" x {len(gpus)}"


def gpu_mig(facts: Facts, expect: Expectations) -> Fault | str:
    """A GPU in MIG mode offers slices, and no whole GPU to a pod that asks for one."""
    _with_driver(facts, expect)
    modes = [gpu.split(",")[1].strip() for gpu in facts.all("gpu") if "," in gpu]
    if not modes:
        raise NotSeenError("nvidia-smi did not say")
    on = modes.count("Enabled")
    if on and not expect.mig:
        return error(
            f"MIG mode is on for {on} of {len(modes)} GPUs and no MIG profile is set",
            "nvidia-smi -mig 0, or pulumi config set migProfile",
        )
    return f"on for {on} of {len(modes)}"


def container_toolkit(facts: Facts, expect: Expectations) -> Fault | str:
    """Containers see GPUs by it: the host's own, or the operator's."""
    _with_device(facts, expect)
    path = facts.get("container_runtime")
    if not path and not (expect.operator and expect.operator_toolkit):
        return error(
            "nvidia-container-runtime is not on PATH",
            "install nvidia-container-toolkit, or pulumi config set gpuOperatorToolkit true",
        )
    return path or "none; the GPU Operator installs it"


def operator_system(facts: Facts, expect: Expectations) -> Fault | str:
    """The operator's driver container exists for some systems only."""
    _asked(expect)
    asked_for(expect.operator and expect.operator_driver, "the host brings its own driver")
    name = facts.one("os")
    words = f"{name} {facts.get('os_like')}".replace("-", " ").split()
    family = next((FAMILIES[word] for word in words if word in FAMILIES), "unknown")
    if family not in DRIVER_CONTAINER or name == "debian":
        return error(
            f"NVIDIA has no driver container for {name}",
            "install the driver on the host and pulumi config set gpuOperatorDriver false",
        )
    return f"{name} {facts.get('os_version')}"


def _asked(expect: Expectations) -> None:
    asked_for(expect.gpus, "no GPU is asked for")


def _with_device(facts: Facts, expect: Expectations) -> None:
    _asked(expect)
    if not facts.all("gpu_pci"):
        raise NotSeenError("this host has no NVIDIA GPU (gpu-device)")


def _with_driver(facts: Facts, expect: Expectations) -> None:
    _with_device(facts, expect)
    if not facts.get("driver"):
        raise NotSeenError("no driver is loaded (gpu-driver)")


GPU_CHECKS = (
    Check("gpu-device", gpu_device),
    Check("gpu-driver", gpu_driver),
    Check("gpu-driver-version", gpu_driver_version),
    Check("nouveau", nouveau),
    Check("nvidia-smi", nvidia_smi),
    Check("gpu-mig", gpu_mig),
    Check("container-toolkit", container_toolkit),
    Check("operator-system", operator_system),
)
