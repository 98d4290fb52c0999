"""Runs a script of infra/node/scripts as the program does: a shell reads it from standard input."""

import os
import re
import subprocess
from collections.abc import Mapping

from infra.node.shell_program import SCRIPTS, Privilege, assemble_program, script_text

_VALUES = {"WAIT_FOR": "gpus"}  # values of variables that allow only certain words
ALL_SCRIPTS = sorted(path.name for path in SCRIPTS.glob("*.sh"))


def required_variables(script: str) -> dict[str, str]:
    """Return a value for each variable that the script requires (`${NAME:?}`)."""
    names = re.findall(r'"\$\{(\w+):\?\}"', script_text(script))
    return {name: _VALUES.get(name, "given") for name in names}


def run(script: str, action: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script as this user. If the variable BIN is given, it comes first on PATH."""
    path = f"{variables.get('BIN', '')}:{os.environ['PATH']}"
    return run_text(script_text(script), action, variables, "user", {"PATH": path})


def run_text(
    text: str,
    action: str,
    variables: Mapping[str, str],
    privilege: Privilege,
    environment: Mapping[str, str],
    mounts: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a script's text with `variables`; `environment` is added to the environment of the shell.

    `mounts` is a shell command that runs before the script in a mount namespace of its own. Only
    the script sees what this command mounts.
    """
    apart = ["unshare", "--mount", "/bin/sh", "-c", f'{mounts} && exec "$@"', "sh"]
    return subprocess.run(
        [*(apart if mounts else []), "/bin/sh", "-s", "--", action],
        input=assemble_program(text, variables, privilege),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )
