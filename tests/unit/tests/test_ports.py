"""The ports that tests give to their servers."""

import socket
import subprocess
import sys

from tests.ports import HELD, PORTS, STEP, free_port
from tests.unit.stacks import PROJECT

# As many ports as it holds, after the one that argv names has come round.
ANOTHER = """
import sys
from tests import ports
ports._next_ports = ports.itertools.cycle([int(sys.argv[1]), *ports.PORTS])
print(*(ports.free_port() for _ in range(ports.HELD)))
"""


def test_each_call_gives_another_free_port_with_room_after_it() -> None:
    """A run's ranks meet at one of the ports after its own."""
    found = [free_port() for _ in range(2 * HELD)]
    assert len(set(found)) == len(found)
    assert all(port % STEP == 0 for port in found)


def test_port_that_somebody_listens_on_is_left_out() -> None:
    taken = free_port()
    with socket.create_server(("127.0.0.1", taken)):
        assert taken not in [free_port() for _ in PORTS]


def test_two_processes_get_no_port_in_common() -> None:
    """Also when nobody listens there yet."""
    ours = free_port()
    command = [sys.executable, "-c", ANOTHER, str(ours)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    theirs = [int(word) for word in done.stdout.split()]
    assert len(theirs) == HELD
    assert ours not in theirs
