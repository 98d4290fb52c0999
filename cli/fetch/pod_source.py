"""A run's bytes out of a pod on the volume: by the API server's proxy, or by `exec`.

By the proxy a byte passes the API server alone, which takes a quarter of the processor time of
`exec`. The proxy needs the right to `get` pods/proxy and a network in which the API server reaches
pods; where one of them is missing, or it fails again and again, `exec` does the same.
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
from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import SILENCE_SECONDS, Sink
from infra.kube.errors import ApiError, TaskError, UnreachableError

AUTO, EXEC = "auto", "exec"
PROBE_SECONDS = 5.0
BLOCK_BYTES = 256 << 10
GONE_STATUS = 410
MOST_FAILURES = 3  # of the proxy, one after the other, in one stream
REMOVED = "a file was removed from the volume while it was read"


class Response(Protocol):
    """What `get` answers."""

    status: int

    def stream(self, amt: int) -> Iterator[bytes]:
        """The body, in blocks."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


Get = Callable[[Api, str, Mapping[str, str], Mapping[str, str], float], Response]
"""A GET of the API server: path, query, headers, and after how many seconds without a byte it
fails with an error of urllib3."""


def get_by_client(
    api: Api, path: str, query: Mapping[str, str], headers: Mapping[str, str], seconds: float
) -> Response:
    """See `Get`."""
    return api.stream(path, dict(query), headers, seconds)


class PodSource:
    """The source of `Bringer` that a pod on the volume is.

    Args:
        pod: with the program of pod_program.py.
        how: AUTO takes the proxy where it works, EXEC never does.
        say: told where the proxy cannot be used.
        get: sends requests to the API server.
    """

    where = VOLUME

    def __init__(
        self, pod: VolumePod, how: str, say: Callable[[str], None], get: Get = get_by_client
    ) -> None:
        self._pod, self._how, self._say, self._get = pod, how, say, get

    def ask(self, *words: str) -> dict[str, Any]:
        """See VolumePod."""
        return self._pod.ask(*words)

    def open_send(self, run_path: str, names: Sequence[str]) -> Callable[[], Send]:
        """Each stream has connections of its own."""
        proxy = self._open_proxy(run_path) if self._how == AUTO else None
        paths = [str(PurePosixPath(run_path) / name) for name in names]

        def open_one() -> Send:
            pod = self._pod.again()
            by_exec = _send_by_exec(pod, paths)
            return _send_by_proxy(proxy, pod.api, names, by_exec) if proxy else by_exec

        return open_one

    def _open_proxy(self, run_path: str) -> "Proxy | None":
        """None where the proxy cannot be used."""
        program = Path(pod_server.__file__).read_text()
        try:
            answer = self._pod.again(program).ask(run_path)
            proxy = Proxy(self._pod.path, int(answer["port"]), str(answer["token"]), self._get)
            proxy.request(self._pod.api, "", {}, PROBE_SECONDS).close()
        except (TaskError, UnreachableError, ApiError) as reason:
            self._say(f"bytes come by exec, which is slower: {reason}")
            return None
        return proxy


class Proxy:
    """The way to the server in the pod."""

    def __init__(self, pod_path: str, port: int, token: str, get: Get) -> None:
        collection, _, name = pod_path.rpartition("/")
        self._path = f"{collection}/http:{name}:{port}/proxy/"
        self._headers = {pod_server.TOKEN_HEADER: token}
        self._get = get

    def request(
        self, api: Api, name: str, query: Mapping[str, str], seconds: float = SILENCE_SECONDS
    ) -> Response:
        """Ask for a part of a file.

        Raises:
            GoneError: it is not there any more.
            UnreachableError: no answer, or one that is not the server's.
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
        """Bring one piece. Raises as `request` does."""
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
    """The next block, empty at the end; an error of the sink is none of the connection."""
    try:
        return next(blocks, b"")
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise UnreachableError(f"the connection was cut ({type(error).__name__})") from None


def _send_by_proxy(proxy: Proxy, api: Api, names: Sequence[str], by_exec: Send) -> Send:
    failures = 0

    def send(pieces: Sequence[Piece], sink: Sink) -> None:
        def take(block: memoryview) -> None:
            nonlocal failures
            failures = 0  # a cut after some bytes is none of the proxy's
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
    """The words of the pod's command `send`. Pure."""
    return [word for p in pieces for word in (paths[p.file], str(p.offset), str(p.count))]
