"""Reads a run from the volume through a pod: by the API server's proxy to pods, or by `exec`.

With the proxy, bytes pass only through the API server, and need a quarter of the processor time of
`exec`. The proxy needs the right to `get` pods/proxy, and a network in which the API server reaches
pods. If one of them is missing, or if the proxy fails again and again, `exec` is used instead.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Protocol
from urllib.parse import quote

import urllib3

from cli.fetch import pod_program, pod_server
from cli.fetch.batches import Piece
from cli.fetch.transfer import GoneError, Send
from cli.fetch.wanted import VOLUME
from cli.volume_pod import SEND_SECONDS, VolumePod
from infra.command_line import Say
from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import SILENCE_SECONDS, Sink
from infra.kube.errors import ApiError, TaskError, UnreachableError

AUTO, EXEC = "auto", "exec"
PROBE_SECONDS = 5.0
BLOCK_BYTES = 256 << 10
GONE_STATUS = 410
MOST_FAILURES = 3  # after so many failures in a row, a stream uses `exec` instead of the proxy
REMOVED = "a file was removed from the volume while it was read"


class Response(Protocol):
    """The answer to a request of `Get`."""

    status: int

    def stream(self, amt: int) -> Iterator[bytes]:
        """The body, in blocks."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


Get = Callable[[Api, str, Mapping[str, str], Mapping[str, str], float], Response]
"""Sends a GET to the API server. The arguments are the cluster, the path, the query, the headers,
and the number of seconds without a byte after which it fails with an error of urllib3."""


def get_by_client(
    api: Api, path: str, query: Mapping[str, str], headers: Mapping[str, str], seconds: float
) -> Response:
    """Send a GET with the official Kubernetes client; the arguments are those of `Get`."""
    return api.stream(path, dict(query), headers, seconds)


class PodSource:
    """A source for `Bringer` that reads through a pod on the volume.

    Args:
        pod: the pod, with the program of pod_program.py.
        how: AUTO uses the proxy if it works; EXEC never uses it.
        say: prints a line if the proxy cannot be used.
        get: sends requests to the API server.
    """

    where = VOLUME

    def __init__(self, pod: VolumePod, how: str, say: Say, get: Get = get_by_client) -> None:
        self._pod, self._how, self._say, self._get = pod, how, say, get

    def ask(self, *words: str) -> dict[str, Any]:
        """Return the answer of the pod's program, as `VolumePod.ask` does."""
        return self._pod.ask(*words)

    def open_send(self, run_path: str, names: Sequence[str]) -> Callable[[], Send]:
        """Return a function that opens a stream; each stream has its own connections."""
        proxy = self._open_proxy(run_path) if self._how == AUTO else None
        paths = [str(PurePosixPath(run_path) / name) for name in names]

        def open_one() -> Send:
            pod = self._pod.with_own_connections()
            by_exec = _send_by_exec(pod, paths)
            return _send_by_proxy(proxy, pod.api, names, by_exec) if proxy else by_exec

        return open_one

    def _open_proxy(self, run_path: str) -> "Proxy | None":
        """Start the server in the pod, and test the proxy; None if it cannot be used."""
        program = Path(pod_server.__file__).read_text()
        try:
            answer = self._pod.with_own_connections(program).ask(run_path)
            proxy = Proxy(self._pod.path, int(answer["port"]), str(answer["token"]), self._get)
            proxy.request(self._pod.api, "", {}, PROBE_SECONDS).close()
        except (TaskError, UnreachableError, ApiError) as reason:
            self._say(f"bytes come by exec, which is slower: {reason}")
            return None
        return proxy


class Proxy:
    """Sends requests to the server in the pod, through the API server's proxy."""

    def __init__(self, pod_path: str, port: int, token: str, get: Get) -> None:
        collection, _, name = pod_path.rpartition("/")
        self._path = f"{collection}/http:{name}:{port}/proxy/"
        self._headers = {pod_server.TOKEN_HEADER: token}
        self._get = get

    def request(
        self, api: Api, name: str, query: Mapping[str, str], seconds: float = SILENCE_SECONDS
    ) -> Response:
        """Request a part of a file.

        Raises:
            GoneError: there is no such part any more.
            UnreachableError: there is no answer, or it has another status than 200.
        """
        try:
            path = self._path + quote(name)
            response = self._get(api, path, query, self._headers, seconds)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            reason = type(error).__name__
            raise UnreachableError(f"the proxy does not answer ({reason})") from None
        if response.status == 200:
            return response
        response.close()
        if response.status == GONE_STATUS:
            raise GoneError(REMOVED)
        raise UnreachableError(f"the proxy answers with status {response.status}")

    def copy(self, api: Api, name: str, piece: Piece, sink: Sink) -> None:
        """Copy one piece into the sink; it raises the errors of `request`."""
        query = {"offset": str(piece.offset), "count": str(piece.count)}
        response = self.request(api, name, query)
        end = time.monotonic() + SEND_SECONDS
        blocks = iter(response.stream(BLOCK_BYTES))
        try:
            while block := _next(blocks):
                sink(memoryview(block))
                if time.monotonic() > end:
                    raise UnreachableError(f"a piece took longer than {SEND_SECONDS:.0f} s")
        finally:
            response.close()


def _next(blocks: Iterator[bytes]) -> bytes:
    """Return the next block, or an empty one at the end.

    Only errors of the connection become UnreachableError here, and not errors of the sink.
    """
    try:
        return next(blocks, b"")
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise UnreachableError(f"the connection was cut ({type(error).__name__})") from None


def _send_by_proxy(proxy: Proxy, api: Api, names: Sequence[str], by_exec: Send) -> Send:
    failures = 0

    def send(pieces: Sequence[Piece], sink: Sink) -> None:
        def take(block: memoryview) -> None:
            nonlocal failures
            failures = 0  # a connection that is cut after some bytes is no failure of the proxy
            sink(block)

        nonlocal failures
        if failures >= MOST_FAILURES:
            by_exec(pieces, sink)
            return
        failures += 1
        for piece in pieces:
            proxy.copy(api, names[piece.file], piece, take)

    return send


def _send_by_exec(pod: VolumePod, paths: Sequence[str]) -> Send:
    def send(pieces: Sequence[Piece], sink: Sink) -> None:
        if pod.run(["send", *path_words(paths, pieces)], sink) == pod_program.GONE:
            raise GoneError(REMOVED)

    return send


def path_words(paths: Sequence[str], pieces: Sequence[Piece]) -> list[str]:
    """Return the arguments of the program's command `send`. This function is pure."""
    return [word for p in pieces for word in (paths[p.file], str(p.offset), str(p.count))]
