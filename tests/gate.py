"""A gate in front of a server: it can be closed and opened, and it can cut connections."""

import socket
import threading
import time
from contextlib import suppress

from tests.ports import free_port


class Gate:
    """Passes connections on to a server, unless it is closed."""

    def __init__(self, server: tuple[str, int]) -> None:
        self.server = server
        self.port = free_port()
        self.cut_after_bytes = 0  # a connection is cut after so many bytes to the server; 0: never
        self.close_when_cut = False
        self.delay_seconds = 0.0  # after each block that goes to the server
        self.delay_down_seconds = 0.0  # after each block that comes from the server
        self.cuts_down: list[int] = []  # cut after so many bytes from the server in all
        self._down_bytes = 0
        self._sockets: list[socket.socket] = []
        # Each connection has its own threads. All of them count bytes, cut and close.
        self._lock = threading.RLock()
        self.open()

    def open(self) -> None:
        """Listen again at the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port), reuse_port=True)
        self._is_open = True
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """Cut all connections, and accept no new ones."""
        with self._lock:
            self._is_open = False
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self.cut()

    def cut(self) -> None:
        """Cut all connections that are open now."""
        with self._lock:
            ends, self._sockets = self._sockets, []
            for end in ends:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                ours, _ = listener.accept()
                try:
                    theirs = socket.create_connection(self.server)
                except OSError:
                    ours.close()
                    continue
                with self._lock:
                    self._sockets += [ours, theirs]
                    if not self._is_open:  # the gate was closed after this connection came
                        self.cut()
                        return
                for ends in ((ours, theirs, True), (theirs, ours, False)):
                    threading.Thread(target=self._copy, args=ends, daemon=True).start()

    def _count_down(self, count: int) -> None:
        with self._lock:
            self._down_bytes += count
            if self.cuts_down and self._down_bytes > self.cuts_down[0]:
                del self.cuts_down[0]
                self.cut()

    def _count_up(self, passed: int) -> None:
        """Cut, or close the gate, if one connection has passed too many bytes (`passed`)."""
        with self._lock:
            if self.cut_after_bytes and passed > self.cut_after_bytes:
                self.cut_after_bytes = 0
                if self.close_when_cut:
                    self.close()
                else:
                    self.cut()

    def _copy(self, source: socket.socket, target: socket.socket, upwards: bool) -> None:
        passed = 0
        with suppress(OSError):
            while block := source.recv(65536):
                target.sendall(block)
                passed += len(block)
                time.sleep(self.delay_seconds if upwards else self.delay_down_seconds)
                if upwards:
                    self._count_up(passed)
                else:
                    self._count_down(len(block))
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
