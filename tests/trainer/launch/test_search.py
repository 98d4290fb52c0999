"""A node looks for node 0 in several ways at once, over real sockets, and no way waits for
another.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from tests.trainer.launch.waiting import LIMIT_SECONDS, wait_until
from trainer.launch.membership import join
from trainer.launch.messages import Hello
from trainer.launch.search import Found, Search, asked_once, by_address, by_name

NO_NAME = "nobody.invalid"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Yield a listening socket that stands in for node 0."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(LIMIT_SECONDS)
        yield made


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


def found_by(search: Search) -> Found:
    """Wait until the search has found node 0, and return what it found."""
    found = list[Found]()
    wait_until(lambda: bool(found.append(each) if (each := search.taken()) else found))
    return found[0]


def here() -> str:
    return "127.0.0.1"


def test_address_is_used_while_the_name_is_unknown(server: socket.socket) -> None:
    """Node 0 is found by its address while its name is unknown. Until then the status shows the
    name.
    """
    known = threading.Event()
    address = by_address(lambda: here() if known.is_set() else "")
    with closing(Search([by_name(NO_NAME), address], port_of(server))) as search:
        wait_until(lambda: f"waiting for the DNS name {NO_NAME}" in search.status)
        known.set()
        found = found_by(search)
        assert (found.host, found.way) == (here(), address)
        found.connection.close()


def test_way_that_hangs_holds_up_no_other(server: socket.socket) -> None:
    """A way that hangs, as one by a volume that is away, does not hold up another one. When it
    answers too late, its connection is closed.
    """
    answers, asked = threading.Event(), threading.Event()

    def hang() -> str:
        asked.set()
        answers.wait()
        return here()

    with closing(Search([by_address(hang), by_name(here())], port_of(server))) as search:
        with found_by(search).connection as first, server.accept()[0]:
            assert asked.wait(LIMIT_SECONDS)
            answers.set()
            late, _ = server.accept()
            with late:
                late.settimeout(LIMIT_SECONDS)
                assert late.recv(1) == b"", "nobody uses it, so it has to be closed"
            assert first.fileno() >= 0
        assert search.taken() is None


def test_closed_search_leaves_no_connection(server: socket.socket) -> None:
    search = Search([by_name(here())], port_of(server))
    with server.accept()[0] as accepted:
        search.close()
        accepted.settimeout(LIMIT_SECONDS)
        assert accepted.recv(1) == b""
    assert search.taken() is None


def test_volume_that_fails_is_asked_again(server: socket.socket) -> None:
    """A volume that fails with an `OSError` is asked for the address again, as `join` asks it."""
    fails = [OSError("stale file handle"), OSError("stale file handle")]

    def ask() -> str:
        if fails:
            raise fails.pop()
        return here()

    address = by_address(asked_once(ask, set()))
    with closing(Search([by_name(NO_NAME), address], port_of(server))) as search:
        found_by(search).connection.close()


def test_address_of_a_stranger_is_tried_once(server: socket.socket) -> None:
    """An address that somebody else answers at is tried once, and the name is still looked up. A
    pod of another run may have got an old address of node 0.
    """
    asked, over, said = list[str](), threading.Event(), list[str]()

    def noted() -> str:
        asked.append(here())
        return here()

    one = Hello(1, 2, "same", "1-1", "one", 1, "pod-1")
    give_up = over.is_set
    words = (NO_NAME, port_of(server), one, b"key", LIMIT_SECONDS, said.append, give_up, noted)
    node = threading.Thread(target=join, args=words)
    node.start()
    server.accept()[0].close()
    before = len(asked)
    wait_until(lambda: len(asked) >= before + 3)
    over.set()
    node.join()
    server.settimeout(0)
    with pytest.raises(BlockingIOError):
        server.accept()


def test_question_that_hangs_is_not_repeated() -> None:
    """A question to the volume that hangs is not asked again until it is answered. Otherwise a node
    that is refused again and again would pile up threads.
    """
    asked, answers = threading.Event(), threading.Event()

    def noted() -> str:
        asked.set()
        answers.wait()
        return here()

    ask = asked_once(noted, set())
    first = threading.Thread(target=ask)
    first.start()
    assert asked.wait(LIMIT_SECONDS)
    assert ask() == ""
    answers.set()
    first.join()
    assert ask() == here()


def test_names_are_told_and_addresses_are_not() -> None:
    """The status shows names and not addresses, because people know node 0 by its name."""
    way = by_address(here)
    assert (by_name(here()).is_told, way.is_told) == (True, False)
    told = replace(way, is_told=True)
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        closed_port = port_of(taken)
    with closing(Search([told], closed_port)) as search:
        wait_until(lambda: "waiting for node 0 at 127.0.0.1" in search.status)
    asked = list[str]()
    untold = by_address(lambda: asked.append(here()) or here())
    with closing(Search([untold], closed_port)) as search:
        wait_until(lambda: len(asked) > 1)  # the first attempt has failed by now
        assert search.status == ""


def test_name_that_no_dns_server_can_know_is_named() -> None:
    """Python itself refuses some names before any DNS server is asked, such as one with a part of
    more than 63 characters. The search goes on, and its status shows the name.
    """
    name = f"{'x' * 64}.example"
    with closing(Search([by_name(name)], 1)) as search:
        wait_until(lambda: f"waiting for node 0 at {name}" in search.status)
