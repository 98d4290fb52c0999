"""`make demo-local` runs the same trainer as processes of this machine, without root or cluster."""

import os
import subprocess
from pathlib import Path

from sandbox.dataset import training_text
from sandbox.say import say
from sandbox.setup import ensure_venv_module
from sandbox.venvs import PROJECT, ensure_venv

PROCESSES = 2


def run() -> None:
    """Prepare the text, train with two processes, and print a sample.

    Raises:
        subprocess.CalledProcessError: a command failed; its output says why.
    """
    ensure_venv_module()
    python = ensure_venv(".venv-trainer") / "bin" / "python"
    text = training_text()
    say(f"text: {text.what}")
    data_root = PROJECT / "build" / "demo-local"
    run_name = "demo-local"
    settings = [
        "--config=shakespeare-char-cpu",
        f"--run_name={run_name}",
        f"--data_root={data_root}",
        f"--dataset.file={text.path}",
        f"--dataset.sha256={text.sha256}",
        f"--dataset.size_bytes={text.path.stat().st_size}",
        "--train.max_steps=300",
        "--eval.interval=100",
        "--checkpoint.interval=100",
    ]
    topology = {
        "PET_NNODES": "1",
        "PET_NPROC_PER_NODE": str(PROCESSES),
        "DISTTRAIN_READY_DIR": str(data_root / "ready"),
    }
    _trainer(python, ["prepare", *settings], {})
    _trainer(python, ["entrypoint", *settings], topology)
    run_dir = data_root / "runs" / run_name
    say(f"\ncheckpoints: {run_dir / 'checkpoints'}\nsample:")
    _trainer(python, ["sample", f"--run-dir={run_dir}", "--prompt=ROMEO:"], {})


def _trainer(python: Path, arguments: list[str], environment: dict[str, str]) -> None:
    subprocess.run(
        [python, "-m", "trainer", *arguments],
        cwd=PROJECT,
        env={**os.environ, **environment},
        check=True,
    )
