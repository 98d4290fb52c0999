"""Judges the evidence: one result for each thing to check after a launch. This module is pure."""

from statistics import fmean

from cli.check import Result
from cli.status.judge import GOES_ON
from cli.verify.evidence import Evidence, result
from cli.verify.gpu_results import gpu_results
from cli.verify.network_results import all_reduce, shared_memory, transport
from cli.verify.pod_results import pinned_memory, variables
from cli.verify.volume_results import shared_volume
from infra.kube.objects import name_of, part, parts
from infra.kube.pods.report import describe_pods, report_pod

FEWEST_LOSSES = 10
RESTING = ("stopped", "suspended")  # states in which the pods were removed on purpose


def judge(seen: Evidence) -> list[Result]:
    """Return all results, in the order of the stages of a launch."""
    return [
        _pods_run(seen),
        _one_image(seen),
        *gpu_results(seen),
        shared_memory(seen),
        pinned_memory(seen),
        variables(seen),
        transport(seen),
        all_reduce(seen),
        shared_volume(seen),
        _steps(seen),
        _loss_falls(seen),
        _checkpoint(seen),
    ]


def _pods_run(seen: Evidence) -> Result:
    if not seen.pods:
        state = seen.status.state
        if state in ("finished", *RESTING):
            return result("pods-run", "not applicable", f"there are no pods: the run is {state}")
        fix = "./disttrain status says what is missing"
        return result("pods-run", "error", "there are no pods", fix)
    reports = [report_pod(pod) for pod in seen.pods]
    if not all(report.ready for report in reports):
        if seen.status.state == "finished":
            return result("pods-run", "not applicable", "the run is finished")
        said = f"{describe_pods(list(seen.pods))}; a pod is ready when its ranks have stepped"
        fix = "wait a moment if the run has just started; ./disttrain status says what is missing"
        return result("pods-run", "error", said, fix)
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


def _steps(seen: Evidence) -> Result:
    run = seen.status
    progress = run.progress
    said = f"{run.state}: {run.detail}" if run.detail else run.state
    if progress.step is not None:
        said += f", step {progress.step} of {progress.of}"
    if run.state in (*GOES_ON, "finished"):
        return result("steps", "ok", said)
    fix = "./disttrain resume" if run.state in RESTING else "./disttrain logs"
    return result("steps", "error", said, fix)


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
    if not last < first:  # written like this because a loss may be NaN, which is never less
        fix = "lower run.train.learning_rate, or check the data"
        return result("loss-falls", "warning", said, fix)
    return result("loss-falls", "ok", said)


def _checkpoint(seen: Evidence) -> Result:
    if seen.volume_problem:
        return result("checkpoint", "not checked", seen.volume_problem)
    found = seen.checkpoint
    if found is None:
        return result("checkpoint", "not checked", "there is none yet")
    if found["problem"]:
        fix = "a restart continues from an older one; check the disk"
        return result("checkpoint", "error", f"step {found['step']}: {found['problem']}", fix)
    said = (
        f"step {found['step']}, {found['age_seconds']:.0f} s old: {found['files']} files of "
        f"{found['bytes']:,} bytes have their sha256"
    )
    return result("checkpoint", "ok", said)
