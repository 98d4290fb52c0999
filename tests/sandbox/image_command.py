"""Runs `python -m infra.image`, the program that imports the image, and reads its report."""

import json
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parent.parent.parent


def run_command(*arguments: str) -> dict[str, int]:
    """Run `python -m infra.image`, which must succeed, and return the report in its last line."""
    done = subprocess.run(
        [sys.executable, "-m", "infra.image", *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
