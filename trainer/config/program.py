"""The section `program` of a run: a program of the user's own in place of our trainer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainer.config.option import option
from trainer.config.problem import problem_text

# Of the section `train` those options that are about starting ranks, and not about our training.
LAUNCH_OPTIONS = (
    "rendezvous_timeout_seconds",
    "volume_timeout_seconds",
    "max_restarts",
    "max_pod_failures",
    "transport_policy",
    "nodes_min",
    "nodes_wait_seconds",
    "nodes_return_seconds",
)


@dataclass(frozen=True)
class ProgramConfig:
    """What runs in place of our trainer; without a command our trainer does."""

    command: tuple[str, ...] = option((), "the program and its arguments, as a list of texts")
    image: str | None = option(
        None,
        "image in which the program runs, with a python3 of 3.11 or newer; else the trainer's",
    )
    per: str = option(
        "rank",
        "how often it is started: once for each rank, or once for each node (pod), where it "
        "starts the ranks itself, as torchrun does",
        choices=("rank", "node"),
    )
    files: str | None = option(None, "checksum of the files at /program", pattern=r"[0-9a-f]+")
    progress: str | None = option(
        None,
        "regular expression for the lines of rank 0 that tell its progress, with a group named "
        "step and perhaps groups named loss and total",
        pattern=r".+",
    )


def program_problems(program: ProgramConfig) -> list[str]:
    """What is wrong with values that are each of the right type."""
    return [*_image_problems(program.image), *_progress_problems(program)]


def _image_problems(image: str | None) -> list[str]:
    remedy = "Write it like nvcr.io/nvidia/pytorch:25.01-py3"
    if image is None:
        return []
    if re.fullmatch(r"[^\s:@][^\s@]*(@sha256:[0-9a-f]{64})?", image) is None:
        return [problem_text("program.image", image, "it is not the name of an image", remedy)]
    tag = re.search(r":([^/:@]+)(@|$)", image)
    if "@" not in image and (tag is None or tag[1] == "latest"):
        reason = "a restart could bring other code, as it has no tag but latest and no digest"
        return [problem_text("program.image", image, reason, remedy)]
    return []


def _progress_problems(program: ProgramConfig) -> list[str]:
    if program.progress is None:
        return []
    try:
        groups = re.compile(program.progress).groupindex
    except re.error as error:
        reason = f"it is no regular expression of Python ({error})"
        remedy = "Write it like 'step (?P<step>\\d+) loss (?P<loss>\\S+)'"
        return [problem_text("program.progress", program.progress, reason, remedy)]
    unknown = sorted(set(groups) - {"step", "loss", "total"})
    if "step" not in groups or unknown:
        reason = "it has no group named step"
        if unknown:
            reason = f"it has a group named {unknown[0]}, of which nobody knows the meaning"
        remedy = "Name the groups step, loss and total, as in 'step (?P<step>\\d+)/(?P<total>\\d+)'"
        return [problem_text("program.progress", program.progress, reason, remedy)]
    return []
