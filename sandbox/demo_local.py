"""`make demo-local` runs the same trainer as processes of this machine, without root or cluster."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandbox.dataset import training_text
from sandbox.say import say
from sandbox.setup import ensure_venv_module
from sandbox.venvs import PROJECT, ensure_venv

PRESETS = PROJECT / "trainer" / "presets"
DEFAULT_PRESET = "shakespeare-char-cpu"
SHORT = ("--train.max_steps=300", "--eval.interval=100", "--checkpoint.interval=100")
DEFAULT_WARM_UP = 100  # steps; the default in trainer/config/train.py
DATA_ROOT = PROJECT / "build" / "demo-local"


@dataclass(frozen=True)
class Options:
    """What is trained, and how.

    Args:
        preset: name of a file in trainer/presets, without its ending.
        processes: how many ranks train; 0: one for each GPU, or two on the CPU.
        device: auto, cpu or cuda; empty: the device that the preset names.
        steps: length of the run; 0: 300 for the default preset, else the preset's length.

    Raises:
        ValueError: there is no such preset, or a number is below 0.
    """

    preset: str = DEFAULT_PRESET
    processes: int = 0
    device: str = ""
    steps: int = 0

    def __post_init__(self) -> None:
        known = sorted(path.stem for path in PRESETS.glob("*.yaml"))
        if self.preset not in known:
            raise ValueError(
                f"PRESET: {self.preset!r} cannot be used: there is no such preset. "
                f"Set one of {', '.join(known)}."
            )
        for name, value in (("PROCESSES", self.processes), ("STEPS", self.steps)):
            if value < 0:
                raise ValueError(f"{name}: {value} cannot be used: it is below 0. Set 1 or more.")

    @property
    def may_use_gpus(self) -> bool:
        """Whether the ranks train on GPUs if there are some."""
        return (self.device or device_of(self.preset)) != "cpu"

    @property
    def run_name(self) -> str:
        """The run's name. Each preset has its own, so that none continues another's checkpoints."""
        return "demo-local" if self.preset == DEFAULT_PRESET else f"demo-local-{self.preset}"


def warm_up_steps(preset: str) -> int:
    """How many steps the preset's learning rate rises at the beginning of a run."""
    text = (PRESETS / f"{preset}.yaml").read_text()
    found = re.search(r"^ *warmup_steps: *(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else DEFAULT_WARM_UP


def device_of(preset: str) -> str:
    """The device that the preset names; `auto` if it names none."""
    found = re.search(r"^ *device: *(\w+)", (PRESETS / f"{preset}.yaml").read_text(), re.MULTILINE)
    return found[1] if found else "auto"


def ranks_of(options: Options, gpus: int) -> int:
    """How many processes train, each as one rank.

    Args:
        options: what is trained, and how.
        gpus: how many GPUs the trainer sees and may use.

    Raises:
        ValueError: there are fewer GPUs than processes. NCCL takes no two ranks on one GPU.
    """
    if gpus and options.processes > gpus:
        raise ValueError(
            f"PROCESSES: {options.processes} cannot be used: each process needs a GPU of its own, "
            f"and {gpus} can be seen. Set {gpus} or less, or DEVICE=cpu."
        )
    return options.processes or gpus or (1 if options.device == "cuda" else 2)


def visible_gpus(python: Path) -> int:
    """How many GPUs the torch of this Python sees."""
    program = "import torch; print(torch.cuda.device_count())"
    done = subprocess.run([python, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    return int(done.stdout)


def trainer_settings(options: Options, text: Path | None, sha256: str) -> list[str]:
    """The trainer's command-line options. Apart from the size of `text`, it reads only the preset.

    Args:
        options: what is trained.
        text: a file with Shakespeare's text; None: the preset's own data set is downloaded.
        sha256: the checksum of that file.
    """
    settings = [
        f"--config={options.preset}",
        f"--run_name={options.run_name}",
        f"--data_root={DATA_ROOT}",
    ]
    if text:
        settings += [
            f"--dataset.file={text}",
            f"--dataset.sha256={sha256}",
            f"--dataset.size_bytes={text.stat().st_size}",
        ]
    if options.device:
        settings.append(f"--train.device={options.device}")
    if options.steps:
        settings.append(f"--train.max_steps={options.steps}")
        if options.steps < warm_up_steps(options.preset):
            settings.append(f"--train.warmup_steps={options.steps // 2}")
    elif options.preset == DEFAULT_PRESET:
        settings += SHORT
    return settings


def run(options: Options) -> None:
    """Prepare the text, train, and print a sample.

    Raises:
        ValueError: there are fewer GPUs than processes.
        subprocess.CalledProcessError: a command failed; its output says why.
    """
    ensure_venv_module()
    python = ensure_venv(".venv-trainer") / "bin" / "python"
    ranks = ranks_of(options, visible_gpus(python) if options.may_use_gpus else 0)
    path, sha256 = None, ""
    if options.preset.startswith("shakespeare"):
        text = training_text()
        say(f"text: {text.what}")
        path, sha256 = text.path, text.sha256
    settings = trainer_settings(options, path, sha256)
    topology = {
        "PET_NNODES": "1",
        "PET_NPROC_PER_NODE": str(ranks),
        "DISTTRAIN_READY_DIR": str(DATA_ROOT / "ready"),
    }
    _trainer(python, ["prepare", *settings], {})
    _trainer(python, ["entrypoint", *settings], topology)
    say("\nwhere the time went:")
    _trainer(python, ["goodput", *settings], {})
    run_dir = DATA_ROOT / "runs" / options.run_name
    say(f"\ncheckpoints: {run_dir / 'checkpoints'}\nsample:")
    _trainer(python, ["sample", f"--run-dir={run_dir}", "--prompt=ROMEO:"], {})


def _trainer(python: Path, arguments: list[str], environment: dict[str, str]) -> None:
    subprocess.run(
        [python, "-m", "trainer", *arguments],
        cwd=PROJECT,
        env={**os.environ, **environment},
        check=True,
    )
