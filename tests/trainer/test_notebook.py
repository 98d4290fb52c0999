"""The notebook for people without a cluster: every cell runs on a CPU, in order.

The cells run in one Python process, as a kernel would run them; Jupyter itself is not started.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from sandbox.dataset import training_text
from sandbox.venvs import PROJECT
from trainer.config import load_config

NOTEBOOK = PROJECT / "notebooks" / "try_a_configuration.ipynb"
SECONDS = 600
STEPS = 120
SET = "pulumi config set"


def cells() -> list[str]:
    """Return the code of the notebook's cells."""
    content = json.loads(NOTEBOOK.read_text())
    return ["".join(c["source"]) for c in content["cells"] if c["cell_type"] == "code"]


def test_notebook_checks_trains_draws_and_samples(tmp_path: Path) -> None:
    """All cells run in order; the notebook checks a configuration, trains, draws the curves, and
    prints `pulumi` commands that give the same configuration.
    """
    program = "\n".join(cells())
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=NOTEBOOK.parent,
        env={
            **os.environ,
            "DISTTRAIN_NOTEBOOK_FOLDER": str(tmp_path),
            "DISTTRAIN_NOTEBOOK_TEXT": str(training_text().path),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for words in (
        "the configuration is valid",
        "model.n_head: 5 cannot be used",
        "train.max_stepps",
        f"step {STEPS}/{STEPS}",
        f"run notebook is finished: step {STEPS}",
    ):
        assert words in done.stdout
    assert (tmp_path / "runs/notebook/plot.png").stat().st_size > 10_000
    preset, *changes = [line for line in done.stdout.splitlines() if line.startswith(SET)]
    pairs = [line.removeprefix(f"{SET} --path ").replace("'", "").split() for line in changes]
    options = [f"--{key.removeprefix('run.')}={value}" for key, value in pairs]
    assert load_config(preset.split()[-1], options).train.max_steps == STEPS


def test_notebook_is_kept_without_its_outputs() -> None:
    """The notebook is stored without outputs, which could contain paths and names of a machine."""
    content = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
