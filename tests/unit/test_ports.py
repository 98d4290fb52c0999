"""The ports that tests give to their servers."""

import socket

from tests.ports import PORTS_OF_A_WORKER, STEP, free_port


def test_each_call_gives_another_free_port_with_room_after_it() -> None:
    """A run's ranks meet at one of the ports after its own."""
    found = [free_port() for _ in range(PORTS_OF_A_WORKER // STEP // 2)]
    assert len(set(found)) == len(found)
    assert all(port % STEP == 0 for port in found)


def test_port_that_somebody_listens_on_is_left_out() -> None:
    taken = free_port()
    with socket.create_server(("127.0.0.1", taken)):
        assert taken not in [free_port() for _ in range(PORTS_OF_A_WORKER // STEP)]
