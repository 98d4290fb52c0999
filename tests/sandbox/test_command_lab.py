"""The helpers with which the tests of the command plugin read an engine's output."""

import subprocess

from tests.sandbox.command_lab import finish, read_until


def test_rest_holds_every_line_after_the_awaited() -> None:
    """No line of the output is lost after the line that a test waited for, even if they arrive
    together.
    """
    program = subprocess.Popen(
        ["printf", "%s\\n", "first", "awaited", "second", "third"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:
        assert read_until(program, "awaited") == "first\nawaited\n"
        assert finish(program) == "second\nthird\n"
    assert program.returncode == 0
