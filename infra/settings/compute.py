"""Reads how many processes train, in how many pods, and on which devices."""

from dataclasses import dataclass

from infra.kube.quantity import amount
from infra.settings.devices import Devices
from infra.settings.kinds import Chosen, WorkloadChoice
from infra.settings.project import declared_defaults
from infra.settings.reader import Reader
from infra.world import World

PODS = 3
"""Number of pods of a topology with several pods, if `pods` is 0 and the platform has one machine.
The stack multipod has as many."""
MOST_PODS = 100_000
"""The largest number of pods of a Job whose pods have indices."""
_SEVERAL = "Remove it, or set a topology of several pods, such as indexed-job"


@dataclass(frozen=True)
class ComputeSettings:
    """The workload kind, the world, and the size of /dev/shm in each pod."""

    topology: Chosen
    world: World
    shm_size: str


def read_compute(
    reader: Reader, topology: Chosen, kind: WorkloadChoice, devices: Devices
) -> ComputeSettings:
    """Read the number of pods and processes, and check that the platform has enough GPUs."""
    gpus_per_pod = reader.integer("gpusPerPod", at_least=1)
    processes = reader.integer("processesPerPod", at_least=1)
    pods = _read_pods(reader, topology, kind, devices.machines)
    on_gpu = devices.accelerator == "gpu"
    comparable = reader.are_right("gpus", "gpusPerPod", "pods")
    compute = ComputeSettings(
        topology=topology,
        world=World(
            pods=pods,
            ranks_per_pod=gpus_per_pod if on_gpu else processes,
            gpus_per_pod=gpus_per_pod if on_gpu else 0,
        ),
        shm_size=reader.size("shmSize"),
    )
    if on_gpu and comparable and compute.world.gpus > devices.gpus:
        keys = "gpusPerPod" if pods == 1 else "pods * gpusPerPod"
        each = "" if pods == 1 else f"{pods} pods want {gpus_per_pod} each, "
        owner = reader.raw("platform")
        there = f"gpus of stack {owner!r} to what its" if owner else "gpus to what the"
        reader.problem(
            keys,
            compute.world.gpus,
            f"the platform has {devices.gpus} GPUs (gpus), {each}and two nccl ranks cannot share "
            "one",
            f"Lower {keys} to at most {devices.gpus}, or set {there} platform has",
        )
    if on_gpu and processes != 1:
        reader.problem(
            "processesPerPod",
            processes,
            "with accelerator: gpu each pod has one rank per GPU",
            "Set 1, and the number of ranks by gpusPerPod",
        )
    is_shared = devices.shared and reader.are_right("gpuTimeSlices", "migProfile")
    if on_gpu and is_shared and compute.world.world_size > 1:
        reader.problem(
            "gpusPerPod" if pods == 1 else "pods",
            compute.world.world_size,
            "the platform offers each GPU several times, and two nccl ranks cannot share one",
            "Set one pod with gpusPerPod: 1, or offer whole GPUs (gpuTimeSlices: 1, no migProfile)",
        )
    return compute


def check_shared_memory(reader: Reader, compute: ComputeSettings, limit_per_rank: str) -> None:
    """Refuse a `shmSize` above the memory limit of a pod.

    The kubelet makes /dev/shm no larger than that limit, so what is above it counts for nothing.
    The default is accepted, so that users of small limits need not set shmSize, too.

    Args:
        reader: collects the problems that are found.
        compute: the number of ranks in a pod, and the size of /dev/shm.
        limit_per_rank: the setting `memoryLimitPerRank`; empty: no limit.
    """
    size, ranks = compute.shm_size, compute.world.ranks_per_pod
    if not limit_per_rank or size in ("", declared_defaults()["shmSize"]):
        return
    if amount(size) > ranks * amount(limit_per_rank):
        limit = limit_per_rank if ranks == 1 else f"{ranks} * {limit_per_rank}"
        reason = f"it is a part of the pod's memory, whose limit is {limit} (memoryLimitPerRank)"
        reader.problem(
            "shmSize", size, reason, "Set no more than that, or raise memoryLimitPerRank"
        )


def _read_pods(reader: Reader, topology: Chosen, kind: WorkloadChoice, machines: int) -> int:
    """Read the number of pods.

    With `pods: 0`, a topology of several pods gets one pod for each of the platform's machines, or
    PODS pods if there is one machine.
    """
    pods = reader.integer("pods", at_least=0, at_most=MOST_PODS)
    if kind.several_pods:
        return pods or (machines if machines > 1 else PODS)
    if pods > 1 and reader.are_right("topology"):
        reader.problem("pods", pods, f"topology: {topology.name} has one pod", _SEVERAL)
    return 1


def check_nodes_min(
    reader: Reader, nodes_min: int, compute: ComputeSettings, kind: WorkloadChoice
) -> None:
    """Check that the run has at least as many pods as `run.train.nodes_min` asks for."""
    key, pods = "run.train.nodes_min", compute.world.pods
    if not reader.are_right("topology"):
        return  # The number of pods is not known.
    if nodes_min and not kind.several_pods:
        reason = f"topology: {compute.topology.name} has one pod, which is always needed"
        reader.problem(key, nodes_min, reason, _SEVERAL)
    elif nodes_min > pods and reader.are_right("pods"):
        hint = f"Set at most {pods}, or 0 where the training needs all pods"
        reader.problem(key, nodes_min, f"the run has {pods} pods (pods)", hint)
