"""Finds out whether this machine reaches the port of the API server on the host."""

import socket
from urllib.request import getproxies, proxy_bypass

from cli.check import PROBE_SECONDS
from infra.no_proxy import is_loopback

API_PORT = 6443
NOT_NEEDED = "not needed"  # the API server is not reached at this port from here
REACHED = "reached"
BY_PROXY = "by proxy"  # the shell names a proxy, which clients of the API server would use


def api_line(host: str, port: int = API_PORT) -> str:
    """Return the fact `api_port` as a line.

    Its value is NOT_NEEDED, REACHED or BY_PROXY, or the reason why the port is not reached. Before
    k3s is installed, nobody listens there: a connection that is refused shows that packets arrive.

    Args:
        host: the host with the API server; empty: it is not reached from here.
        port: the API server's port there.
    """
    if not host:
        return f"api_port={NOT_NEEDED}"
    if not is_loopback(host) and "https" in getproxies() and not proxy_bypass(host):
        return f"api_port={BY_PROXY}"
    try:
        socket.create_connection((host, port), PROBE_SECONDS).close()
    except ConnectionRefusedError:
        pass
    except TimeoutError:
        return f"api_port=no answer in {PROBE_SECONDS} s"
    except OSError as reason:
        return f"api_port={reason.strerror or reason}"
    return f"api_port={REACHED}"
