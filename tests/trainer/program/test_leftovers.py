"""Which processes are leftovers of a program, and which belong to the launcher."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.trainer.lab import CHECKOUT
from tests.trainer.program.desk import Desk
from trainer.launch.exit_codes import ExitCode

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
    """Every orphan of the program is ended, also one in another session and without variables, and
    no helper of the launcher is.
    """
    done = subprocess.run(
        [sys.executable, "-c", LEAVES], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {"found": 1, "left": [], "rest": True}


# Both have ended, and nobody has read their exit status. That of the helper is still wanted.
REAPS = """
import os, subprocess, time
from pathlib import Path
from trainer.program.leftovers import reap, take_orphans
def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
take_orphans()
helper = subprocess.Popen(["sh", "-c", "exit 7"])
# It ends after its shell, which may otherwise ask it how it ended.
reader, writer = os.pipe()
command = f"cat <&{reader} >/dev/null 2>&1 & echo $!"
shell = subprocess.run(["sh", "-c", command], capture_output=True, text=True, pass_fds=[reader])
orphan = int(shell.stdout)
os.close(writer)
while (state(helper.pid), state(orphan)) != ("Z", "Z"):
    time.sleep(0.01)
reap([helper.pid])
print(os.path.exists(f"/proc/{orphan}"), helper.wait())
"""


def test_orphans_that_have_ended_are_let_go() -> None:
    """Orphans that have ended are removed from the container's table of processes, which they would
    fill. A helper that has ended is left to the code that waits for it.
    """
    done = subprocess.run(
        [sys.executable, "-c", REAPS], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "7"]


LOOKS_OFTEN = """
import runpy
from trainer.program import ranks
ranks.REAP_SECONDS = 0
runpy.run_module("trainer", run_name="__main__", alter_sys=True)
"""


def test_running_program_keeps_no_ended_orphans(desk: Desk) -> None:
    """Ended orphans are removed while the program runs, as it may start thousands of short commands
    in the background.
    """
    desk.trainer = [sys.executable, "-c", LOOKS_OFTEN]
    desk.start(desk.config("sh", "-c", "sh -c 'true & echo orphan $!'; exec sleep 3600"))
    desk.wait_for(r"orphan \d+")
    (orphan,) = re.findall(r"orphan (\d+)", desk.log())
    desk.wait("the orphan to be let go", lambda: not Path(f"/proc/{orphan}").exists())


def test_program_that_goes_on_behind_its_first_process_is_named(desk: Desk) -> None:
    """A program that is still running when its first process ends with 0 is named: a shell that
    starts the training in the background, or a daemon, would end the run before its first step.
    """
    # The shell waits until its child is no shell any more.
    is_sleep = "until grep -q sleep /proc/$!/comm; do sleep 0.01; done"
    assert desk.run(desk.config("sh", "-c", f"sleep 3600 & {is_sleep}")) == ExitCode.DONE
    said = (
        "[node 0] warning: the program has ended with exit code 0, and what it has left running is "
        "ended now: sleep 3600. If the training is among it, start it in the foreground, without & "
        "or nohup"
    )
    assert said in desk.log()
    assert desk.run(desk.config("sh", "-c", "exit 0")) == ExitCode.DONE, "it leaves nothing"
    assert desk.log().count("left running") == 1
