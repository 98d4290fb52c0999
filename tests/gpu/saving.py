"""Checks of saves beside training: which GPUs they touch, whether copies are whole, timing."""

from __future__ import annotations

import shutil

import torch

from tests.gpu.place import NotHereError, Place, contexts, losses
from tests.gpu.time_line import TimeLine, time_line
from trainer.config import RunConfig
from trainer.parallel.world import World

STEPS, SAVED_AT = 24, 10  # a run with saves after each fifth step continues from the second


def a_cpu_run_makes_no_context(place: Place) -> str:
    """A run on the CPU of a machine with GPUs makes no context on a GPU when it saves."""
    if not torch.cuda.is_available():
        raise NotHereError("there is no GPU that could be touched")
    cpu = Place("cpu", place.root)
    cpu.train(cpu.config("on-the-cpu", checkpoint__interval=4))
    touched = contexts()
    assert not touched, f"a run on the CPU has made contexts on GPUs {touched}"
    return "no context after 12 steps with saves on the CPU"


def a_save_touches_no_other_gpu(place: Place) -> str:
    """A rank that has saved has a context on its own GPU and on no other.

    A context on another GPU would take hundreds of megabytes of its memory. The rank has the last
    GPU, because a thread that does not choose one uses the first.
    """
    count = torch.cuda.device_count()
    if count < 2:
        raise NotHereError(f"it needs two GPUs, here are {count}")
    own = count - 1
    place.train(place.config("own-gpu", checkpoint__interval=4), World(local_rank=own))
    assert contexts() == [own], f"contexts on GPUs {contexts()}, the rank's is GPU {own}"
    return f"after saves a context on GPU {own} alone, of {count}"


def a_copy_under_load_is_whole(place: Place) -> str:
    """Weights that are saved while training goes on are all of the same step.

    The copy of this model takes longer than a step. The run is continued from a checkpoint that was
    copied under load. If the checkpoint were a mixture of two steps, the losses would differ.
    """
    wide = {"model__n_embd": 1024 if place.device == "cuda" else 128, "model__n_layer": 4}
    undisturbed = losses(place.train(_deterministic(place, "undisturbed", **wide)))
    saving = _deterministic(place, "saving", **wide, checkpoint__interval=5)
    again = _continue_from(place, saving, step=SAVED_AT)
    assert again == undisturbed, f"continued from step {SAVED_AT}: {again}, not {undisturbed}"
    return f"continued from step {SAVED_AT}, saved under load: {STEPS} losses equal bit by bit"


def a_resume_is_bitwise(place: Place) -> str:
    """A run that was stopped and continued has the same losses, bit by bit, as one without a stop.

    The run has deterministic algorithms, dropout and bfloat16.
    """
    settings = {"model__dropout": 0.1, "train__dtype": "bfloat16"}
    whole = losses(place.train(_deterministic(place, "whole", **settings)))
    part, rest = (
        _deterministic(place, "parts", **settings, train__max_steps=steps) for steps in (7, STEPS)
    )
    place.train(part)
    found = losses(place.train(rest))
    assert found == whole, f"stopped at 7 and continued: {found}, not {whole}"
    return f"{STEPS} losses equal bit by bit, stopped after step 7"


def _deterministic(place: Place, run_name: str, **changes: object) -> RunConfig:
    settings = {"train__max_steps": STEPS, "train__decay_steps": STEPS, "eval__interval": 0}
    fixed = {"train__deterministic": True, "checkpoint__keep_last": 100}
    return place.config(run_name, **{**settings, **fixed, **changes})


def _continue_from(place: Place, saving: RunConfig, step: int) -> list[float]:
    """Train to the end, remove all checkpoints after `step`, and train to the end again.

    Return the losses of all steps.
    """
    place.train(saving)
    folders = sorted((saving.run_dir / "checkpoints").glob("step-*"))
    newer = [folder for folder in folders if int(folder.name.removeprefix("step-")) > step]
    assert len(newer) < len(folders), f"no checkpoint of step {step} or before: {folders}"
    for folder in newer:
        shutil.rmtree(folder)
    (saving.run_dir / "done.json").unlink()
    return losses(place.train(saving))


def a_copy_runs_beside_the_kernels(place: Place) -> str:
    """The copies of a save to the host run on a stream of their own, beside the kernels of the
    training. The batches come from page-locked memory, so that the host waits for no copy.

    The time line comes from torch's profiler.
    """
    if place.device != "cuda":
        raise NotHereError("it needs a GPU's time line")
    line = profile_saves(place)
    assert line.copied_bytes > 100e6, f"only {line.copied_bytes} bytes were copied: {line}"
    assert not line.pageable_bytes, f"batches are not page-locked: {line}"
    assert not line.shares_a_stream, f"copies and kernels are on one stream: {line}"
    assert line.overlap_seconds > 0, f"no kernel ran beside the copies: {line}"
    return line.describe()


def profile_saves(place: Place) -> TimeLine:
    """Return the time line of a run of 12 steps with saves of 2.4 GB.

    A step takes the GPU longer than the host, as in real runs. With less work the GPU would have
    nothing left to do when a copy begins, so that nothing could overlap.
    """
    run = place.config(
        "profiled",
        model__n_embd=2048,
        model__n_layer=4,
        model__n_head=16,
        model__block_size=512,
        train__dtype="bfloat16",
        train__global_batch_size=64,
        train__micro_batch_size=32,
        checkpoint__interval=5,
        log__interval=100,
    )
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        place.train(run)
    trace = place.root / "trace.json"
    profiler.export_chrome_trace(str(trace))
    return time_line(trace.read_text())


CHECKS = (
    a_cpu_run_makes_no_context,
    a_save_touches_no_other_gpu,
    a_copy_under_load_is_whole,
    a_resume_is_bitwise,
    a_copy_runs_beside_the_kernels,
)
