"""The section `program` of a run: the user's own program, which replaces disttrain's trainer."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from trainer.config.option import ANY_LINE, Form, option
from trainer.config.problem import problem_text

# The options of the section `train` that concern the start of ranks. The user's own program uses
# only these.
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
_PART = r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    r"(([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:[0-9]+)?/)?"  # the registry
    rf"{_PART}(/{_PART})*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@sha256:[0-9a-f]{{64}})?"
)


@dataclass(frozen=True)
class ProgramConfig:
    """The program that replaces disttrain's trainer. Without a command, the trainer runs."""

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
    files: str | None = option(
        None,
        "checksum of the files at /program",
        form=Form(r"[0-9a-f]+", "a checksum in hexadecimal digits"),
    )
    progress: str | None = option(
        None,
        "regular expression for the lines of rank 0 that tell its progress, with a group named "
        "step and perhaps groups named loss and total",
        form=ANY_LINE,
    )
    progress_file: str | None = option(
        None,
        "file that tells the progress in place of the lines of rank 0, seen from the program's "
        "folder (DISTTRAIN_CHECKPOINT_DIR): each line an object of JSON with step and perhaps "
        "loss and total, or a line that matches progress",
        form=ANY_LINE,
    )

    @property
    def tells_steps(self) -> bool:
        """Whether the settings say how to read the program's progress."""
        return self.progress is not None or self.progress_file is not None


def program_problems(program: ProgramConfig, program_dir: Path) -> list[str]:
    """List the problems of values that have the right types.

    Args:
        program: The section `program`.
        program_dir: The program's own folder inside the run's folder.
    """
    return [
        *_image_problems(program.image),
        *_progress_problems(program),
        *_progress_file_problems(program.progress_file, program_dir),
    ]


def _progress_file_problems(given: str | None, program_dir: Path) -> list[str]:
    if given is None:
        return []
    reason = ""
    if "\0" in given or given.endswith(("/", "/.", "/..")) or given in (".", ".."):
        reason = "it is not the name of a file"
    if Path(os.path.normpath(program_dir / given)) == program_dir.parent / "metrics.jsonl":
        reason = "the launcher itself writes that file"
    remedy = "Write it like logs/progress.jsonl, and let the program write there"
    return [problem_text("program.progress_file", given, reason, remedy)] if reason else []


def _image_problems(image: str | None) -> list[str]:
    remedy = "Write it like nvcr.io/nvidia/pytorch:25.01-py3"
    if image is None:
        return []
    if _IMAGE.fullmatch(image) is None:
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
