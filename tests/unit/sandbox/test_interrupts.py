"""Programs that are started in the background of a shell receive SIGINT nevertheless."""

import subprocess
import sys

from sandbox.venvs import PROJECT

ASK = "import signal; print(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
START = f"""
import subprocess, sys
from sandbox.interrupts import hear_interrupts
{{}}
subprocess.run([sys.executable, "-c", {ASK!r}], check=True)
"""


def ignored_by_a_child(call: str) -> str:
    """Return `True` or `False` as text: whether a child ignores SIGINT if its parent was started in
    the background of a shell and has run `call`.
    """
    in_the_background = ["sh", "-c", 'trap "" INT; exec "$0" -c "$1"', sys.executable]
    done = subprocess.run(
        [*in_the_background, START.format(call)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_program_from_the_background_hears_interrupts() -> None:
    """A child of a program in the background receives SIGINT after `hear_interrupts`. Pulumi's
    engine waits 5 seconds for a child that ignores it.
    """
    assert ignored_by_a_child("pass") == "True"
    assert ignored_by_a_child("hear_interrupts()") == "False"
