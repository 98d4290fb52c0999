"""What is a leftover of a program, and what is a process of the launcher's own."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.trainer.lab import CHECKOUT

# A helper of the launcher, and a shell that leaves a process with another session and no variables.
LEAVES = """
import json, subprocess, sys
from trainer.program.leftovers import end_leftovers, orphans, take_orphans
take_orphans()
helper = subprocess.Popen(["sleep", "3600"], start_new_session=True)
try:
    subprocess.run(["sh", "-c", "env -i setsid sleep 3600 &"])
    found = orphans([helper.pid])
    left = end_leftovers([helper.pid])
    rest = orphans([])
finally:
    helper.kill()
print(json.dumps({"found": len(found), "left": left, "rest": list(rest) == [helper.pid]}))
"""


def test_every_orphan_is_ended_and_no_helper() -> None:
    """Without a mark by which it could be told that the program has started it."""
    done = subprocess.run(
        [sys.executable, "-c", LEAVES], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {"found": 1, "left": [], "rest": True}
