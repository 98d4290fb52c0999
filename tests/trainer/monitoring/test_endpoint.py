"""The address at which a pod offers its metrics, with real questions over real sockets."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.trainer.lab import NoSignals, free_port
from trainer.config import ConfigError
from trainer.monitoring import endpoint as module
from trainer.monitoring.endpoint import Endpoint, metrics_port


class Page:
    """A page whose text changes each time that it is made."""

    def __init__(self) -> None:
        self.made = 0
        self.fails = False
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self) -> str:
        self.made += 1
        made = self.made
        self.may_end.wait()
        if self.fails:
            raise OSError("the volume is gone")
        return f"page {made}\n"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
def endpoint(page: Page, said: list[str]) -> Iterator[Endpoint]:
    endpoint = Endpoint(free_port(), page, said.append)
    yield endpoint
    endpoint.close()


def ask(endpoint: Endpoint, path: str = "/metrics", host: str = "127.0.0.1") -> tuple[int, str]:
    """Return the status and the text of the answer."""
    assert endpoint.port is not None
    connection = http.client.HTTPConnection(host, endpoint.port, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


class NeverWaits(NoSignals):
    """A stop request during which nobody may wait."""

    def wait(self, seconds: float) -> None:
        pytest.fail("somebody is waited for")


def was_read_twice(endpoint: Endpoint) -> None:
    """Make the endpoint believe that it was read long ago and now, so that it waits for its reader
    as long as it ever does.
    """
    endpoint._readings = [0.0, time.monotonic()]  # pyright: ignore[reportPrivateUsage]


def test_metrics_are_served_at_their_path(endpoint: Endpoint) -> None:
    assert ask(endpoint) == (200, "page 1\n")
    assert ask(endpoint, "/")[0] == 404


def test_many_questions_make_one_page(
    endpoint: Endpoint, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many questions within a short time are answered with one page."""
    monkeypatch.setattr(module, "_PAGE_SECONDS", 3600)
    assert {ask(endpoint) for _ in range(20)} == {(200, "page 1\n")}
    assert page.made == 1


def test_page_that_cannot_be_made_is_told_to_the_asker(endpoint: Endpoint, page: Page) -> None:
    page.fails = True
    status, text = ask(endpoint)
    assert status == 500
    assert "the volume is gone" in text
    page.fails = False
    assert ask(endpoint)[0] == 200


def test_client_that_stalls_keeps_nobody_away(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prometheus is answered beside clients that connect and say nothing. So many of them that no
    thread is left are dropped: otherwise they would keep Prometheus away for ever.
    """
    for count, limit_seconds in ((module.CLIENTS_AT_ONCE - 1, 600.0), (20, 0.1)):
        monkeypatch.setattr(module._Handler, "timeout", limit_seconds)  # pyright: ignore[reportPrivateUsage]
        with ExitStack() as silent:
            for _ in range(count):
                silent.enter_context(socket.create_connection(("127.0.0.1", endpoint.port or 0)))
            assert ask(endpoint)[0] == 200


def test_threads_without_a_client_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread without a client waits in the kernel. Threads that looked again and again would take
    the processor from the training, which they did: each recovery took more than twice as long.
    """
    looked = threading.Semaphore(0)
    server = module._Server  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(server, "handle_timeout", lambda _: looked.release())
    started = time.monotonic()
    endpoint = Endpoint(free_port(), lambda: "page\n", lambda _: None)
    try:
        for _ in range(3 * module.CLIENTS_AT_ONCE):
            assert looked.acquire(timeout=60)
        assert server.timeout
        assert time.monotonic() - started >= 2 * server.timeout
    finally:
        endpoint.close()


def test_clients_at_once_get_one_page(
    endpoint: Endpoint, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread makes the page for all clients that ask at once. Several would read the files of
    the run several times.
    """
    monkeypatch.setattr(module, "_PAGE_SECONDS", 3600)
    page.may_end.clear()
    answer, asked = endpoint.answer, list[None]()
    monkeypatch.setattr(endpoint, "answer", lambda: (asked.append(None), answer())[1])
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(ask, endpoint) for _ in range(module.CLIENTS_AT_ONCE)]
        while len(asked) < module.CLIENTS_AT_ONCE:
            time.sleep(0.01)
        page.may_end.set()
        assert {each.result() for each in answers} == {(200, "page 1\n")}


def test_port_that_is_taken_costs_the_metrics_alone(
    endpoint: Endpoint, page: Page, said: list[str]
) -> None:
    """If the port is taken, training goes on without metrics, and a warning says so."""
    assert endpoint.port is not None
    second = Endpoint(endpoint.port, page, said.append)
    assert second.port is None
    assert said == [
        f"warning: port {endpoint.port} cannot serve metrics (Address already in use): training "
        "goes on without them; the setting metricsPort chooses another port"
    ]
    second.await_last_reading(NeverWaits())
    second.close()


def test_regular_reader_sees_the_end(endpoint: Endpoint, page: Page) -> None:
    """At the end the program waits for the next reading of a regular reader, who gets a new page
    and not the one of before.
    """
    was_read_twice(endpoint)
    waiting = threading.Thread(target=endpoint.await_last_reading, args=(NoSignals(),))
    waiting.start()
    shown = ""
    while waiting.is_alive():
        status, shown = ask(endpoint)
        assert status == 200
    assert shown == f"page {page.made}\n"


def test_reading_that_came_late_shortens_no_wait() -> None:
    """A reading that came late does not shorten the wait for the next one. On a busy machine a late
    reading and the next one in time would otherwise look like a short interval.
    """
    assert module.next_reading_by([100.0, 115.0]) == 145.0
    assert module.next_reading_by([100.0, 114.9, 115.0]) == pytest.approx(144.8)
    assert module.next_reading_by([0.0, 100.0]) == 160.0  # a minute is the most


def test_nobody_is_waited_for_who_reads_rarely(endpoint: Endpoint) -> None:
    """Nobody is waited for after a single reading."""
    ask(endpoint)
    endpoint.await_last_reading(NeverWaits())


def test_asked_to_stop_it_waits_for_nobody(endpoint: Endpoint) -> None:
    """A pod that is asked to stop does not wait for a reader."""
    was_read_twice(endpoint)
    stop = NeverWaits()
    stop.requested = True
    endpoint.await_last_reading(stop)


def test_no_port_means_no_server(page: Page, said: list[str]) -> None:
    assert Endpoint(0, page, said.append).port is None
    assert said == []


@pytest.mark.parametrize("text", ["many", "-1", "65536"])
def test_port_that_is_none_is_refused(text: str) -> None:
    assert metrics_port({}) == metrics_port({"DISTTRAIN_METRICS_PORT": "0"}) == 0
    assert metrics_port({"DISTTRAIN_METRICS_PORT": "9464"}) == 9464
    with pytest.raises(ConfigError, match=f"DISTTRAIN_METRICS_PORT: '{text}' is no TCP port"):
        metrics_port({"DISTTRAIN_METRICS_PORT": text})
