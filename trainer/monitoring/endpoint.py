"""Serves `/metrics` to Prometheus from threads of a pod's program.

Training never waits for them. There are a few, so that Prometheus need not wait for a client that
stalls. One of them at a time makes the page, at most once a second, so the work stays small for any
number of requests. If the port is taken, there are no metrics, but nothing else is lost. If the
volume hangs, only these threads hang, and Prometheus sees that there is no answer (`up` is 0).
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise

from trainer.config import ConfigError
from trainer.launch.stop_request import StopRequest
from trainer.monitoring.text import CONTENT_TYPE

PORT_VARIABLE = "DISTTRAIN_METRICS_PORT"
PATH = "/metrics"
CLIENTS_AT_ONCE = 4  # further ones wait
_CLIENT_SECONDS = 5.0  # so long a client may take for its request
_PAGE_SECONDS = 1.0
_READINGS = 5  # so many newest readings are remembered
_LONGEST_LAST_READING_SECONDS = 60.0
_POLL_SECONDS = 0.1


def metrics_port(environment: Mapping[str, str]) -> int:
    """Return the port of the metrics; 0 for none.

    Raises:
        ConfigError: the variable DISTTRAIN_METRICS_PORT holds no port.
    """
    text = environment.get(PORT_VARIABLE, "") or "0"
    if text.isdecimal() and int(text) < 65536:
        return int(text)
    raise ConfigError([f"{PORT_VARIABLE}: {text!r} is no TCP port. Set 1 to 65535, or 0 for none."])


class Endpoint:
    """The server and its threads; if the port is 0 or taken, nothing is served."""

    def __init__(self, port: int, page: Callable[[], str], say: Callable[[str], None]) -> None:
        """Serve at `port`.

        Args:
            port: The TCP port; 0 for none.
            page: Makes the text. If it raises an error, the answer has the status 500.
            say: Prints a warning if the port is taken.
        """
        self._page, self._text, self._made_at = page, "", -math.inf
        self._readings = list[float]()  # the times of the newest ones, by the monotonic clock
        self._lock = threading.Lock()  # around the page and the readings
        self._is_ending = self._end_was_read = self._is_closed = False
        self._server: _Server | None = None
        if not port:
            return
        try:
            self._server = _Server(port, self)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            say(
                f"warning: port {port} cannot serve metrics ({reason}): training goes on without "
                "them; the setting metricsPort chooses another port"
            )
            return
        threading.Thread(
            target=self._serve, args=(self._server,), name="metrics", daemon=True
        ).start()

    @property
    def port(self) -> int | None:
        """The port at which the metrics are served; None if they are not."""
        return None if self._server is None else int(self._server.socket.getsockname()[1])

    def answer(self) -> tuple[int, str, bool]:
        """Return the status and text of an answer, and whether the text shows the run's end."""
        with self._lock:
            now, shows_end = time.monotonic(), self._is_ending
            if shows_end or now - self._made_at >= _PAGE_SECONDS:
                try:
                    self._text = self._page()
                except Exception as error:  # the answer says it, and training goes on
                    return 500, f"{type(error).__name__}: {error}\n", shows_end
                self._made_at = now
            return 200, self._text, shows_end

    def note_reading(self, shows_end: bool) -> None:
        """Note that an answer was read; `shows_end`: whether it shows the end of the run."""
        with self._lock:
            self._readings = [*self._readings[1 - _READINGS :], time.monotonic()]
            self._end_was_read = self._end_was_read or shows_end

    def await_last_reading(self, stop: StopRequest) -> None:
        """Let a regular reader see the end of the run: wait for one more reading.

        The wait ends after two intervals of the reader, after a minute, or when a stop is
        requested. If there were fewer than two readings, there is no wait.
        """
        if self._server is None or len(self._readings) < 2:
            return
        end = next_reading_by(self._readings)
        self._is_ending = True  # an answer that is being made may not show the end yet
        while not self._end_was_read and time.monotonic() < end and not stop.requested:
            stop.wait(_POLL_SECONDS)

    def close(self) -> None:
        """Let the threads stop listening soon; a thread that hangs ends with the process."""
        self._is_closed = True

    def _serve(self, server: _Server) -> None:
        threads = [
            threading.Thread(target=self._answer_clients, args=(server,), daemon=True)
            for _ in range(CLIENTS_AT_ONCE)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.server_close()

    def _answer_clients(self, server: _Server) -> None:
        while not self._is_closed:
            server.handle_request()


def next_reading_by(readings: Sequence[float]) -> float:
    """Return the time by which a regular reader has read again, by the clock of `readings`.

    That is two intervals after the newest reading, but at most a minute. The longest of the
    intervals counts, because a late reading is soon followed by the next one.

    `readings`: the times of at least two readings, the oldest first.
    """
    interval = max(later - earlier for earlier, later in pairwise(readings))
    return readings[-1] + min(2 * interval, _LONGEST_LAST_READING_SECONDS)


class _Server(HTTPServer):
    """Answers clients by IPv4, and by IPv6 too if the machine has both."""

    timeout = 0.5  # after so many seconds without a request, `handle_request` returns

    def __init__(self, port: int, endpoint: Endpoint) -> None:
        super().__init__(("", port), _Handler, bind_and_activate=False)
        self.endpoint = endpoint
        self.socket.close()
        if socket.has_dualstack_ipv6():
            self.socket = socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True
            )
        else:
            self.socket = socket.create_server(("", port))
        # All threads are woken for a client, and only one of them gets it. The others must not wait
        # for the next client for ever. With no time at all, `handle_request` would not wait either.
        self.socket.settimeout(self.timeout)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing about a client that closes its connection before the answer."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _CLIENT_SECONDS

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, f"the metrics are at {PATH}")
            return
        assert isinstance(self.server, _Server)
        status, text, shows_end = self.server.endpoint.answer()
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.server.endpoint.note_reading(shows_end)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing about requests: the log of a run is for the training."""
