"""Judges limits and variables of the pods that make a training slow. This module is pure."""

from cli.check import Result
from cli.verify.evidence import Evidence, no_pod, result
from trainer.transport.asked import VARIABLE, asked_of
from trainer.transport.lines import EFA, IB, ROCE

PINS = {IB, ROCE, EFA}  # transports whose devices read memory that has to be pinned
ENOUGH_PINNED_BYTES = 1 << 30
UNLIMITED = -1
HELP = "LimitMEMLOCK=infinity; see docs/clusters.md#a-faster-network-between-the-machines"
OFF = ("", "0")
_CHOOSES = "NCCL, or the tuner of its plugin, does not choose what is fastest for each size"
# Variables that nobody needs for a training, and what each of them does.
SLOW = {
    "CUDA_LAUNCH_BLOCKING": "the program waits for each kernel",
    "NCCL_P2P_DISABLE": "the GPUs of a machine do not use NVLink or PCIe directly",
    "NCCL_SHM_DISABLE": "the ranks of a machine do not use shared memory",
    "NCCL_ALGO": _CHOOSES,
    "NCCL_PROTO": _CHOOSES,
}


def pinned_memory(seen: Evidence) -> Result:
    """Check whether the pods may pin the memory that their RDMA or EFA devices read."""
    if not seen.probes:
        return no_pod(seen, "pinned-memory")
    small = list[str]()
    devices = False
    for name, probe in seen.probes.items():
        devices |= bool(PINS & {*asked_of(str(probe["environment"].get(VARIABLE, "")))})
        limit = int(probe["pinned_memory_bytes"])
        if limit != UNLIMITED and limit < ENOUGH_PINNED_BYTES:
            shown = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
            small.append(f"{name} may pin {shown} of memory")
    if not devices:
        said = "the network profile asks for no RDMA or EFA device"
        return result("pinned-memory", "not applicable", said)
    if small:
        said = f"{'; '.join(small)}, and NCCL may need more for its devices"
        fix = f"on the node, give its container runtime {HELP}"
        return result("pinned-memory", "warning", said, fix)
    return result("pinned-memory", "ok", "the pods may pin as much memory as their devices need")


def variables(seen: Evidence) -> Result:
    """Check whether a variable is set that makes training slower."""
    if not seen.probes:
        return no_pod(seen, "variables")
    found = {
        f"{name}={value}: {SLOW[name]}"
        for probe in seen.probes.values()
        for name, value in probe["environment"].items()
        if name in SLOW and value not in OFF
    }
    if found:
        fix = "remove it from podEnvironment, or from the image, unless you measure with it"
        return result("variables", "warning", "; ".join(sorted(found)), fix)
    return result("variables", "ok", "no variable is set that makes training slower")
