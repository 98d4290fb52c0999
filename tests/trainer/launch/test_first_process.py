"""A pod that gets SIGTERM while it is still starting ends at once."""

import subprocess
import sys
import textwrap
from pathlib import Path

from tests.trainer.lab import CHECKOUT
from trainer.launch.exit_codes import ExitCode

STARTS = """
    import trainer
    print("imported", flush=True)
    import time
    time.sleep(600)
"""
LIMIT_SECONDS = 60


def test_first_process_ends_while_it_starts() -> None:
    """The trainer ends on SIGTERM as process 1 while it is still importing. The kernel drops a
    SIGTERM for a process 1 without a handler, and the pod would stay for minutes.
    """
    command = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
    with subprocess.Popen(
        [*command, sys.executable, "-c", textwrap.dedent(STARTS)],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
    ) as outside:
        try:
            assert outside.stdout is not None
            assert outside.stdout.readline() == "imported\n"
            children = Path(f"/proc/{outside.pid}/task/{outside.pid}/children")
            (first,) = children.read_text().split()
            subprocess.run(["kill", "-TERM", first], check=True)
            assert outside.wait(LIMIT_SECONDS) == ExitCode.PREEMPTED
        finally:
            outside.kill()
