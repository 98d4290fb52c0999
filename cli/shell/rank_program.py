"""Runs in a training pod: finds the processes of the ranks, or becomes a command beside one.

It is sent as text to `python3 -c`, so it imports nothing of this project. `find` prints one JSON
object, from rank to process id. `beside PID COMMAND...` runs the command in that rank's place.
"""

import json
import os
import sys
from pathlib import Path

SHELLS = ("bash", "sh")
OWN_VARIABLE = "RANK_PID"


def variables_of(pid: str) -> dict[str, str]:
    """The environment of a process; empty where it has ended or is somebody else's.

    A rank may have waited before it became that rank. What it was given then is in a file
    (trainer/launch/status_files.py), as /proc shows the variables of a process's start alone.
    """
    variables = variables_in(Path("/proc", pid, "environ"))
    if variables:
        folder = variables.get("DISTTRAIN_READY_DIR", "/tmp/disttrain")
        variables |= variables_in(Path(folder, f"variables-{pid}"))
    return variables


def variables_in(file: Path) -> dict[str, str]:
    """Lines NAME=VALUE, each ended by a zero byte; none where the file cannot be read."""
    try:
        text = file.read_text("utf-8", "replace")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def parent_of(pid: str) -> str:
    """The process id of its parent; '0' where it has ended."""
    try:
        text = Path("/proc", pid, "stat").read_text("utf-8", "replace")
    except OSError:
        return "0"
    return text.rpartition(")")[2].split()[1]  # the name before it may hold spaces


def ranks() -> dict[int, int]:
    """From rank to process id.

    What a rank or an earlier `beside` has started has the rank's variables too, and is left out.
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
    """Become the command, or a shell without one, with the rank's variables and `RANK_PID`."""
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
