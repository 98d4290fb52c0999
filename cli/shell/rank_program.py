"""Runs in a training pod: finds the processes of the ranks, or runs a command beside a rank.

It is sent as text to `python3 -c`, so it imports nothing of this project. `find` prints one JSON
object, which has the process id for each rank. `beside PID COMMAND...` runs the command with the
environment variables of the rank with this process id.
"""

import json
import os
import sys
from pathlib import Path

SHELLS = ("bash", "sh")
OWN_VARIABLE = "RANK_PID"


def variables_of(pid: str) -> dict[str, str]:
    """Return the environment of a process; empty if it has ended or belongs to another user.

    A process may have been started before it got its rank. /proc shows only the variables from the
    start of a process. So the variables that it got later are read from a file
    (trainer/launch/status_files.py).
    """
    variables = variables_in(Path("/proc", pid, "environ"))
    if variables:
        folder = variables.get("DISTTRAIN_READY_DIR", "/tmp/disttrain")
        variables |= variables_in(Path(folder, f"variables-{pid}"))
    return variables


def variables_in(file: Path) -> dict[str, str]:
    """Read entries NAME=VALUE, each ended by a zero byte; none if the file cannot be read."""
    try:
        text = file.read_text("utf-8", "replace")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def parent_of(pid: str) -> str:
    """Return the process id of a process's parent; '0' if the process has ended."""
    try:
        text = Path("/proc", pid, "stat").read_text("utf-8", "replace")
    except OSError:
        return "0"
    return text.rpartition(")")[2].split()[1]  # the program's name in brackets may have spaces


def ranks() -> dict[int, int]:
    """Return the process id of each rank.

    Processes that a rank or an earlier `beside` has started also have the rank's variables. They
    are left out.
    """
    found = dict[int, int]()
    for pid in [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]:
        variables = variables_of(pid)
        rank = variables.get("RANK", "")
        is_first = variables_of(parent_of(pid)).get("RANK") != rank
        is_beside = OWN_VARIABLE in variables
        if rank.isdigit() and "LOCAL_RANK" in variables and is_first and not is_beside:
            found[int(rank)] = int(pid)
    return found


def beside(pid: str, command: list[str]) -> None:
    """Replace this process by the command, or by a shell if there is none.

    It gets the rank's variables and `RANK_PID`.
    """
    variables = {**os.environ, **variables_of(pid), OWN_VARIABLE: pid}
    missing = ""
    for words in [command] if command else [[shell] for shell in SHELLS]:
        try:
            os.execvpe(words[0], words, variables)
        except OSError as error:
            missing = f"{words[0]}: {error.strerror}"
    sys.exit(missing)


if __name__ == "__main__":
    if sys.argv[1] == "find":
        print(json.dumps(ranks()))
    else:
        beside(sys.argv[2], sys.argv[3:])
