"""The ports that tests give to their servers."""

import socket
import subprocess
import sys

from tests.ports import HELD, PORTS, STEP, free_port
from tests.unit.stacks import PROJECT

# Prints HELD ports. The port in argv, which another process holds, comes first in its cycle.
ANOTHER = """
import sys
from tests import ports
ports._next_ports = ports.itertools.cycle([int(sys.argv[1]), *ports.PORTS])
print(*(ports.free_port() for _ in range(ports.HELD)))
"""


def test_each_call_gives_another_free_port_with_room_after_it() -> None:
    """Each call returns another multiple of `STEP`, so that no call returns one of the numbers just
    after a port. The ranks of a run also use a port after the run's own.
    """
    found = [free_port() for _ in range(2 * HELD)]
    assert len(set(found)) == len(found)
    assert all(port % STEP == 0 for port in found)


def test_port_that_somebody_listens_on_is_left_out() -> None:
    taken = free_port()
    with socket.create_server(("127.0.0.1", taken)):
        assert taken not in [free_port() for _ in PORTS]


def test_two_processes_get_no_port_in_common() -> None:
    """Two processes never get the same port, even if nobody listens at it yet."""
    ours = free_port()
    command = [sys.executable, "-c", ANOTHER, str(ours)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    theirs = [int(word) for word in done.stdout.split()]
    assert len(theirs) == HELD
    assert ours not in theirs
