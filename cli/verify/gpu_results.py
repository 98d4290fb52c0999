"""Judges the evidence about the GPUs. This module is pure."""

import re
from collections.abc import Iterator, Mapping, Sequence

from cli.check import Result
from cli.status.platform_status import gpus_of
from cli.verify.evidence import Evidence, result
from infra.kube.objects import name_of

BUSY_PERCENT = 50


def gpu_results(seen: Evidence) -> Iterator[Result]:
    """Check whether all GPUs are seen, torch has code for them, and they are busy."""
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
    if not told:
        return result("gpu-code", "not checked", "no GPU was seen")
    return result("gpu-code", "ok", f"torch has code for {', '.join(sorted(told))}")


def has_code_for(capability: int, built: Sequence[str]) -> bool:
    """Whether a build of torch has code that runs on a GPU.

    Binary code (`sm_NN`) runs on GPUs with the same major version and the same or a newer minor
    version. PTX (`compute_NN`) is compiled for any GPU that is not older (NVIDIA's CUDA C++
    Programming Guide, "Application Compatibility").

    Args:
        capability: the GPU's compute capability times ten, such as 90.
        built: the architectures of the build, as `torch.cuda.get_arch_list()` returns them.
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
