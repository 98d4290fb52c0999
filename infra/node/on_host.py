"""Runs a shell program on the host from this machine: `python -m infra.node.on_host ACTION`.

For Pulumi's engine, a command on this machine and a command over SSH are resources of two types.
When the setting `host` changes from one to the other, the engine makes the new command first, and
deletes the old one last of all. A command that runs this program has one type for both. That is
needed in two cases:

- Something has to happen on the old host before anything else. The engine replaces such a command:
  it first runs the `delete`, which reaches the old host with the values in the state.
- Something has to stay on the old host, namely the data folder. The engine only changes such a
  command, so no `delete` removes the data.

Standard input is JSON: `ssh`, which is null or the value that `ssh_command` takes, and `program`, a
text that infra.node.shell_program has made. This file uses only the standard library.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.node.ssh_files import ssh_command

CUT_OFF = 255  # The exit status of ssh if the connection failed or broke.
BEGUN = "disttrain-the-script-has-begun"  # The first line of standard error from a host.


def run_on_host(
    ssh: Mapping[str, Any] | None, program: str, action: str, limit_seconds: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a shell program on the host.

    Args:
        ssh: see `ssh_command`; None: the host is this machine.
        program: the text of the program, for `sh -s`.
        action: the argument of the program, such as `create`.
        limit_seconds: how long the program may take; None: there is no limit.

    Returns:
        What the program has written, and its exit status.

    Raises:
        subprocess.TimeoutExpired: the program took longer than `limit_seconds`.
    """
    with tempfile.TemporaryDirectory(prefix="disttrain-host-") as folder:
        way = ssh_command(ssh, Path(folder), "-T") if ssh else []
        return subprocess.run(
            [*way, "sh", "-s", "--", action],
            input=program,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_seconds,
            check=False,
        )


def main() -> int:
    """Run the job on standard input, and return the exit status of its program."""
    job = json.load(sys.stdin)
    ssh, program = job["ssh"], job["program"]
    if ssh:
        # The shell on the host runs the lines as it reads them, so this line is printed first.
        program = f"echo {BEGUN} >&2\n{program}"
    done = run_on_host(ssh, program, sys.argv[1])
    before, begun, after = done.stderr.partition(f"{BEGUN}\n")
    sys.stdout.write(done.stdout)
    sys.stderr.write(before + after)
    if ssh and done.returncode == CUT_OFF:
        print(_cut_off(ssh["host"], has_begun=bool(begun)), file=sys.stderr)
    return done.returncode


def _cut_off(host: str, *, has_begun: bool) -> str:
    """Tell people what is known if ssh has failed, and what to do."""
    if has_begun:
        known = (
            f"the connection to {host} broke while its script ran, so the script may have changed "
            "something there, and may still run. To run it again does no harm: it goes on from "
            "what it finds"
        )
    else:
        known = f"{host} cannot be reached, so nothing was changed there"
    return (
        f"{known}. Try again when the host can be reached, or, if it is lost for good, make the "
        "stack forget it (docs/node.md, Removal)"
    )


if __name__ == "__main__":
    sys.exit(main())
