"""The options by which the system notices that the other side of a connection is gone.

A log that is followed may be silent for hours, so its connection has no time limit. Without these
options it would wait for ever for the next line if the connection has died without a word, such as
while a laptop slept. The library for websockets asks for the same by itself.
"""

import socket

PROBES = (
    ("TCP_KEEPIDLE", 30),  # seconds of silence before the system asks the other side
    ("TCP_KEEPINTVL", 10),  # seconds between two questions
    ("TCP_KEEPCNT", 3),  # questions without an answer until the connection counts as cut
)


def socket_options() -> list[tuple[int, int, int]]:
    """The options for urllib3, in the form of `setsockopt`. They replace urllib3's own one."""
    at_once = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # urllib3's own option
    alive = (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    probes = [
        (socket.IPPROTO_TCP, int(getattr(socket, name)), value)
        for name, value in PROBES
        if hasattr(socket, name)  # some of the names differ on macOS
    ]
    return [at_once, alive, *probes]
