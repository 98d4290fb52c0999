"""What the tests of the command plugin read from an engine."""

import subprocess

from tests.sandbox.command_lab import finish, read_until


def test_rest_holds_every_line_after_the_awaited() -> None:
    """Also those lines that arrived in the same read as the awaited one."""
    program = subprocess.Popen(
        ["printf", "%s\\n", "first", "awaited", "second", "third"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with program:
        assert read_until(program, "awaited") == "first\nawaited\n"
        assert finish(program) == "second\nthird\n"
    assert program.returncode == 0
