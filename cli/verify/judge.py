"""What the evidence means: one result for each thing that people check after a launch. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from cli.check import Result, Status
from cli.status.judge import RunStatus, gpus_of
from infra.kube.objects import Json, name_of, part, parts
from infra.kube.pods import describe_pods, report_pod

BUSY_PERCENT = 50
FEWEST_LOSSES = 10
SMALL_SHARED_MEMORY_BYTES = 1 << 30
MIB = 1 << 20
_NET = re.compile(r"\b(?:via )?NET/(IB|OFI|Socket|[A-Za-z]+)(?:/\d+)?(/GDRDMA)?")
_RANKS = re.compile(r"\bnranks (\d+).*Init COMPLETE")
_COLLECTIVES = re.compile(r"\bcollectives (nccl|gloo)\b")
DEBUG = "pulumi config set --path 'podEnvironment.NCCL_DEBUG' INFO, then pulumi up"


@dataclass(frozen=True)
class Evidence:
    """What was seen of one run.

    Args:
        status: the run in one word, as `./disttrain status` has it.
        world_size: how many ranks it has.
        pods: those of its training.
        probes: what each pod has answered, by the pod's name.
        unseen: why a pod could not be asked, by the pod's name.
        log: the first lines of node 0's log.
        losses: step and training loss of each record.
        checkpoint: the newest one, as run_probe.py describes it; None where there is none.
        volume_problem: why losses and checkpoint were not seen; empty where they were.
    """

    status: RunStatus
    world_size: int
    pods: Sequence[Json]
    probes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    unseen: Mapping[str, str] = field(default_factory=dict[str, str])
    log: str = ""
    losses: Sequence[tuple[int, float]] = ()
    checkpoint: Mapping[str, Any] | None = None
    volume_problem: str = ""


def judge(seen: Evidence) -> list[Result]:
    """All results, in the order in which a launch goes."""
    return [
        _pods_run(seen),
        _one_image(seen),
        *_gpu_results(seen),
        _shared_memory(seen),
        _transport(seen),
        _steps(seen),
        _loss_falls(seen),
        _checkpoint(seen),
    ]


def result(id: str, status: Status, evidence: str, fix: str = "") -> Result:
    """A result that has no limit of its own."""
    return Result(id, status, evidence, fix, 0)


def _pods_run(seen: Evidence) -> Result:
    if not seen.pods:
        finished = seen.status.state == "finished"
        return result("pods-run", "not applicable" if finished else "error", "there are no pods")
    reports = [report_pod(pod) for pod in seen.pods]
    if not all(report.ready for report in reports):
        if seen.status.state == "finished":
            return result("pods-run", "not applicable", "the run is finished")
        said = describe_pods(list(seen.pods))
        return result("pods-run", "error", said, "./disttrain status says what they wait for")
    where = ", ".join(f"{name_of(pod)} on {part(pod, 'spec').get('nodeName')}" for pod in seen.pods)
    return result("pods-run", "ok", f"every rank has stepped: {where}")


def _one_image(seen: Evidence) -> Result:
    images = {
        str(status.get("imageID"))
        for pod in seen.pods
        for status in parts(part(pod, "status"), "containerStatuses")
        if status.get("imageID")
    }
    if not images:
        return result("one-image", "not checked", "no pod says which image it runs")
    if len(images) > 1:
        fix = "delete the pods of the older image; they come back with the new one"
        return result("one-image", "error", f"the pods run {len(images)} images: {images}", fix)
    return result("one-image", "ok", f"all pods run {images.pop()}")


def _gpu_results(seen: Evidence) -> Iterator[Result]:
    wanted = {name_of(pod): gpus_of(pod) for pod in seen.pods}
    ids = ("gpus-seen", "gpu-code", "gpus-busy")
    if not any(wanted.values()):
        yield from (result(id, "not applicable", "the run asks for no GPUs") for id in ids)
        return
    missing = [f"{name}: {why}" for name, why in seen.unseen.items()]
    if missing:
        yield from (result(id, "not checked", "; ".join(missing)) for id in ids)
        return
    yield _gpus_seen(seen, wanted)
    yield _gpu_code(seen)
    yield _gpus_busy(seen)


def _gpus_seen(seen: Evidence, wanted: Mapping[str, int]) -> Result:
    faults = list[str]()
    for name, probe in seen.probes.items():
        by_torch = probe["torch"].get("devices")
        if probe["gpu_problem"] or probe["torch_problem"]:
            faults.append(f"{name}: {probe['gpu_problem'] or probe['torch_problem']}")
        elif not len(probe["gpus"]) == by_torch == wanted[name]:
            by_smi = len(probe["gpus"])
            faults.append(
                f"{name} asks for {wanted[name]} GPUs, nvidia-smi sees {by_smi}, torch {by_torch}"
            )
    if faults:
        return result("gpus-seen", "error", "; ".join(faults), "./disttrain doctor names the cause")
    names = {gpu["name"] for probe in seen.probes.values() for gpu in probe["gpus"]}
    return result("gpus-seen", "ok", f"{sum(wanted.values())} x {', '.join(sorted(names))}")


def _gpu_code(seen: Evidence) -> Result:
    faults, told = list[str](), set[str]()
    for name, probe in seen.probes.items():
        built: list[str] = probe["torch"].get("architectures") or []
        for gpu in probe["gpus"]:
            code = gpu["capability"].replace(".", "")
            told.add(f"{gpu['name']} ({gpu['capability']})")
            if not has_code_for(int(code), built):
                faults.append(f"{name}: torch was built for {', '.join(built)}, not for sm_{code}")
    if faults:
        fix = "choose another torch by torchIndexUrl"
        return result("gpu-code", "error", "; ".join(sorted(set(faults))), fix)
    return result("gpu-code", "ok", f"torch has code for {', '.join(sorted(told))}")


def has_code_for(capability: int, built: Sequence[str]) -> bool:
    """Whether binaries run on a GPU.

    Those of the same major version and no newer minor one run; PTX (`compute_NN`) is compiled for
    any GPU that is not older (NVIDIA's CUDA C++ Programming Guide, "Application Compatibility").

    Args:
        capability: compute capability times ten, such as 90.
        built: as `torch.cuda.get_arch_list()` gives them.
    """
    for word in built:
        kind, _, number = word.partition("_")
        digits = re.match(r"\d+", number)
        code = int(digits[0]) if digits else 0
        if kind == "sm" and code // 10 == capability // 10 and code <= capability:
            return True
        if kind == "compute" and 0 < code <= capability:
            return True
    return False


def _gpus_busy(seen: Evidence) -> Result:
    if seen.status.state != "training":
        return result("gpus-busy", "not applicable", f"the run is {seen.status.state}")
    busy = [gpu["busy_percent"] for probe in seen.probes.values() for gpu in probe["gpus"]]
    if not busy:
        return result("gpus-busy", "not checked", "no GPU was seen")
    said = f"busy for {min(busy)} % to {max(busy)} % of the time"
    if min(busy) < BUSY_PERCENT:
        fix = "a larger run.train.micro_batch_size; `data` in the log shows waits for the data"
        return result("gpus-busy", "warning", said, fix)
    return result("gpus-busy", "ok", said)


def _shared_memory(seen: Evidence) -> Result:
    sizes = [int(probe["shared_memory_bytes"]) for probe in seen.probes.values()]
    if not sizes:
        return _no_pod(seen, "shared-memory")
    said = f"/dev/shm has {min(sizes) // MIB:,} MiB in each pod"
    several = any(gpus_of(pod) > 1 for pod in seen.pods)
    if several and min(sizes) < SMALL_SHARED_MEMORY_BYTES:
        return result("shared-memory", "warning", said, "pulumi config set shmSize 8Gi")
    return result("shared-memory", "ok", said)


def _transport(seen: Evidence) -> Result:
    """From NCCL's own lines; gloo has no choice of transport but that of the interface."""
    if seen.world_size == 1:
        return result("transport", "not applicable", "the run has one rank")
    if not seen.log and not seen.probes:
        return _no_pod(seen, "transport")
    named = _COLLECTIVES.search(seen.log)
    if named and named[1] == "gloo":
        return _gloo(seen)
    transports = {f"NET/{m[1]}{m[2] or ''}" for m in _NET.finditer(seen.log) if m[1] != "Plugin"}
    ranks = {int(m[1]) for m in _RANKS.finditer(seen.log)}
    if ranks and max(ranks) != seen.world_size:
        said = f"NCCL has joined {max(ranks)} ranks, and the run has {seen.world_size}"
        return result("transport", "error", said, "./disttrain logs shows which rank is missing")
    joined = f"; {max(ranks)} ranks joined" if ranks else ""
    if transports:
        return result("transport", "ok", f"NCCL uses {', '.join(sorted(transports))}{joined}")
    if ranks and len(seen.pods) == 1:
        return result("transport", "ok", f"no network inside one pod{joined}")
    said = "NCCL has said nothing about its transport" if named else "the log does not reach so far"
    return result("transport", "not checked", f"{said}{joined}", DEBUG)


def _gloo(seen: Evidence) -> Result:
    faults, told = list[str](), set[str]()
    for name, probe in seen.probes.items():
        wanted = probe["environment"].get("GLOO_SOCKET_IFNAME", "")
        told.add(wanted or "the interface of the host's name")
        if wanted and wanted not in probe["interfaces"]:
            faults.append(f"{name} has no interface {wanted}: {', '.join(probe['interfaces'])}")
    if faults:
        fix = "set GLOO_SOCKET_IFNAME in podEnvironment"
        return result("transport", "error", "; ".join(faults), fix)
    if not told:
        return _no_pod(seen, "transport")
    where = ", ".join(sorted(told)) if len(seen.pods) > 1 else "the pod's own loopback"
    return result("transport", "ok", f"gloo by TCP over {where}")


def _steps(seen: Evidence) -> Result:
    run = seen.status
    progress = run.progress
    said = f"{run.state}: {run.detail}" if run.detail else run.state
    if progress.step is not None:
        said += f", step {progress.step} of {progress.of}"
    if run.state in ("training", "finished"):
        return result("steps", "ok", said)
    return result("steps", "error", said, "./disttrain logs")


def _loss_falls(seen: Evidence) -> Result:
    if seen.volume_problem:
        return result("loss-falls", "not checked", seen.volume_problem)
    count = len(seen.losses)
    if count < FEWEST_LOSSES:
        return result("loss-falls", "not checked", f"{count} losses are too few to tell")
    share = max(count // 5, 3)
    first = fmean(loss for _, loss in seen.losses[:share])
    last = fmean(loss for _, loss in seen.losses[-share:])
    said = f"mean {first:.4f} of the first {share} records, {last:.4f} of the last {share}"
    if not last < first:  # a loss that is no number is not below anything
        fix = "a lower run.train.learning_rate, or a look at the data"
        return result("loss-falls", "warning", said, fix)
    return result("loss-falls", "ok", said)


def _checkpoint(seen: Evidence) -> Result:
    if seen.volume_problem:
        return result("checkpoint", "not checked", seen.volume_problem)
    found = seen.checkpoint
    if found is None:
        return result("checkpoint", "not checked", "there is none yet")
    if found["problem"]:
        fix = "a restart goes on from an older one; look at the disk"
        return result("checkpoint", "error", f"step {found['step']}: {found['problem']}", fix)
    said = (
        f"step {found['step']}, {found['age_seconds']:.0f} s old: {found['files']} files of "
        f"{found['bytes']:,} bytes have their sha256"
    )
    return result("checkpoint", "ok", said)


def _no_pod(seen: Evidence, id: str) -> Result:
    """For what only a running pod can tell."""
    if seen.status.state == "finished" and not seen.unseen:
        return result(id, "not applicable", "the run is finished, and no pod runs")
    why = "; ".join(f"{name}: {reason}" for name, reason in seen.unseen.items())
    return result(id, "not checked", why or "no pod runs")
