"""`fetch` reads bytes through the API server's proxy where it works, and by exec where it does not.

The pod and the proxy are stand-ins on this machine; the server in the pod is the real program.
"""

import array
import fcntl
import os
import random
import socket
import termios
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.fetch import pod_server
from cli.fetch.pod_source import AUTO
from cli.volume_pod import VolumePod
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from tests.cli.fetch.local_pod import LocalPod, contents, fetch, make_run, small_ranges

CUTS = 50
BIG_BYTES = 32 << 20  # more than the buffers of a connection hold


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Yield the port and the token of the pod's server, a real process that serves the folder
    `served`.
    """
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "it's here").write_bytes(b"0123456789")
    (tmp_path / "secret").write_bytes(b"not for you")
    with (tmp_path / "served" / "big").open("wb") as file:
        file.truncate(BIG_BYTES)
    pod = LocalPod()
    monkeypatch.setattr("cli.volume_pod.stream", pod.stream)
    program = Path(pod_server.__file__).read_text()
    answer = VolumePod(Api(Access("not used")), "pod", "fetch", program).ask(
        str(tmp_path / "served")
    )
    yield answer
    pod.end_servers()


def ask(server: dict[str, Any], path: str, token: str | None = None) -> tuple[int, bytes]:
    """Return the status and the body of the server's answer to a request with this token."""
    url = f"http://127.0.0.1:{server['port']}/{path}"
    headers = {pod_server.TOKEN_HEADER: server["token"] if token is None else token}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, b""


def test_server_gives_ranges_to_who_has_the_token(server: dict[str, Any]) -> None:
    """The pod's server gives parts of files only to who has its token."""
    assert ask(server, "it%27s%20here?offset=3&count=4") == (200, b"3456")
    assert ask(server, "") == (200, b"")
    for token in ("", "0" * 64):
        assert ask(server, "it%27s%20here?offset=3&count=4", token) == (403, b"")


def test_server_gives_nothing_beside_its_folder(server: dict[str, Any]) -> None:
    """The pod's server gives no file outside of its folder, and no part that goes beyond a file's
    end.
    """
    for path in ("../secret", "%2e%2e/secret", "%2Fetc%2Fpasswd", "a/../../secret"):
        assert ask(server, f"{path}?offset=0&count=1")[0] in (403, 410)
    assert ask(server, "nothing?offset=0&count=1") == (410, b"")
    assert ask(server, "it%27s%20here?offset=3&count=8") == (410, b"")  # the file is shorter


def test_server_waits_for_a_slow_reader(server: dict[str, Any]) -> None:
    """The pod's server waits for a reader that is slow. Otherwise it would send what the
    connection's buffers hold, and then break off.
    """
    head = f"GET /big?offset=0&count={BIG_BYTES} HTTP/1.1\r\nHost: x\r\n"
    head += f"{pod_server.TOKEN_HEADER}: {server['token']}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server["port"]), timeout=60) as reader:
        reader.sendall(head.encode())
        before, waiting = -1, 0
        deadline = time.monotonic() + 60
        while waiting > before or waiting == 0:  # until the connection's buffers are full
            assert time.monotonic() < deadline, f"after {waiting:,} bytes more still arrive"
            time.sleep(0.1)
            before, waiting = waiting, readable_bytes(reader)
        assert waiting < BIG_BYTES
        with reader.makefile("rb") as answer:
            while answer.readline().strip():
                pass
            assert len(answer.read(BIG_BYTES)) == BIG_BYTES


def readable_bytes(reader: socket.socket) -> int:
    """Return how many bytes have arrived at the socket and wait to be read."""
    count = array.array("i", [0])
    fcntl.ioctl(reader, termios.FIONREAD, count)
    return count[0]


def test_fifty_cuts_of_the_proxy_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run arrives whole through the proxy although the connection is cut fifty times, and exec is
    not used.
    """
    seed = int(os.environ["DISTTRAIN_TEST_SEED"])
    print(f"seed {seed}")
    draw = random.Random(seed)
    small_ranges(monkeypatch)
    run = make_run(tmp_path / "volume" / "demo", model_bytes=4_000_003)
    size = sum(len(content) for content in contents(run).values())
    pod = LocalPod([draw.randrange(1, size // (CUTS + 2)) for _ in range(CUTS)])
    fetch(monkeypatch, pod, run, tmp_path / "here", how=AUTO)
    assert pod.cuts_made == CUTS
    assert contents(tmp_path / "here") == contents(run)
    assert not any(words[0] == "send" for words in pod.commands)


@pytest.mark.parametrize("fails", ["always", "later"])
def test_proxy_that_fails_gives_way_to_exec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """If the proxy does not work, at first or later, `fetch` reads by exec. A 403 means that the
    user may not use the proxy; a 503 means that the API server does not reach the pod.
    """
    run = make_run(tmp_path / "volume" / "demo")
    pod = LocalPod()
    if fails == "always":
        pod.proxy_status = 403
    else:
        probe = pod.get

        def get(*arguments: Any) -> Any:
            answer = probe(*arguments)
            pod.proxy_status = 503
            return answer

        monkeypatch.setattr(pod, "get", get)
    said: list[str] = []
    fetch(monkeypatch, pod, run, tmp_path / "here", say=said.append, how=AUTO)
    reason = "bytes come by exec, which is slower: the proxy answers with status 403"
    assert (reason in said) == (fails == "always")
    assert contents(tmp_path / "here") == contents(run)
    assert any(words[0] == "send" for words in pod.commands)
    assert len(pod.requests) == (1 if fails == "always" else 4)


def test_pruned_checkpoint_is_seen_by_the_proxy_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that the trainer removes while it comes through the proxy gives way to one that
    is there.
    """
    run = make_run(tmp_path / "demo", steps=(100, 200))

    def prune(words: list[str]) -> None:
        if words[0] == "send" and "step-00000200" in words[1] and pruned.exists():
            pruned.rename(run / "checkpoints" / ".tmp-old")

    pruned = run / "checkpoints" / "step-00000200"
    brought = fetch(monkeypatch, LocalPod(before=prune), run, tmp_path / "here", how=AUTO)
    assert brought.checkpoint
    assert brought.checkpoint.step == 100
