"""Runs a script of infra/scripts as the program does: variables and text by standard input."""

import os
import subprocess

from infra.shell_program import assemble_program
from tests.unit.stacks import PROJECT

SCRIPTS = PROJECT / "infra" / "scripts"


def run(script: str, action: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The variable BIN, where it is given, comes first on PATH."""
    program = assemble_program((SCRIPTS / script).read_text(), variables, None, "")
    return subprocess.run(
        ["/bin/sh", "-s", "--", action],
        input=program,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PATH": f"{variables.get('BIN', '')}:{os.environ['PATH']}"},
    )
