"""Runs shell text on the host from this machine: `python -m infra.node.on_host ACTION`.

To Pulumi's engine a command here and a command over SSH are resources of two types. When the
setting `host` changes from one to the other, it makes the new command first and deletes the old
one last of all. What has to happen on the old host before anything else is run by this program: it
is one type of command for both, which the engine replaces, and to replace it means to run its
`delete` first, with the way to the old host from the state. What has to stay on the old host, which
is the data folder, is run by it too: the command is then changed, and no `delete` takes the data.

Standard input is JSON: `ssh`, which is null or as `ssh_command` takes it, and `program`, the text
of infra.node.shell_program. Standard library only.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.node.ssh_files import ssh_command

CUT_OFF = 255  # ssh's exit status when it is the connection that failed


def run_on_host(
    ssh: Mapping[str, Any] | None, program: str, action: str, limit_seconds: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program and return what it wrote and how it ended.

    Args:
        ssh: see `ssh_command`; None: the host is this machine.
        program: text for `sh -s`.
        action: its argument, such as `create`.
        limit_seconds: how long it may take; None: as long as it wants.

    Raises:
        subprocess.TimeoutExpired: it took longer.
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
    """Returns the exit status of the program."""
    job = json.load(sys.stdin)
    done = run_on_host(job["ssh"], job["program"], sys.argv[1])
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    if job["ssh"] and done.returncode == CUT_OFF:
        host = job["ssh"]["host"]
        print(
            f"{host} cannot be reached, so nothing was changed there. Try again when it can be, "
            "or, if it is lost for good, make the stack forget it (docs/node.md, Removal)",
            file=sys.stderr,
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
