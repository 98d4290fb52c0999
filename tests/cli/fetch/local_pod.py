"""A stand-in for a pod with a volume: the pod's program runs as a real process on this machine.

Standard output comes in blocks of the size of a websocket's messages. The test plans after how many
bytes it is cut: then the call fails like a cut connection, or the test's whole process ends as by
SIGKILL. Unlike the real stream there is no network, and no API server that buffers.
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import urllib3

from cli.fetch import batches, from_volume, partial
from cli.fetch.bring import Bringer, Brought
from cli.fetch.folder import Folder
from cli.fetch.pod_source import EXEC, PodSource, Response
from cli.volume_pod import VolumePod
from infra.kube.api_server.access import Access
from infra.kube.api_server.api import Api
from infra.kube.api_server.exec_stream import Ended, Sink
from infra.kube.errors import UnreachableError

BLOCK_BYTES = 8192
RANGE_BYTES = 256 << 10  # so small that a small file has many ranges


class LocalPod:
    """Runs the pod's commands; `stream` replaces `infra.kube.api_server.exec_stream.stream`.

    Args:
        cuts: how many bytes of all streams together pass before each cut.
        before: a function that gets the words of each command before it runs.
        end: a function that is called at each cut, before UnreachableError is raised.
    """

    def __init__(
        self,
        cuts: Iterable[int] = (),
        before: Callable[[list[str]], None] = lambda words: None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self.sent_bytes, self.cuts_made = 0, 0
        self.commands: list[list[str]] = []
        self.requests: list[str] = []  # names of the files that the proxy was asked for
        self.servers: list[int] = []
        self.proxy_status = 200  # the status of every answer of the proxy
        self._before, self._end = before, end
        self._cuts = iter(cuts)
        self._left = next(self._cuts, None)
        self._lock = threading.Lock()

    def stream(
        self,
        _api: Api,
        _pod_path: str,
        _container: str,
        words: list[str],
        sink: Sink,
        _blocks: Iterable[bytes] = (),
        limit_seconds: float = 60.0,
    ) -> Ended:
        self.commands.append(words[3:])
        self._before(words[3:])
        program = [sys.executable, *words[1:]]
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout
            assert process.stderr
            try:
                while block := os.read(process.stdout.fileno(), BLOCK_BYTES):
                    if words[3] == "send":
                        self._pass_on(block, sink)
                    else:
                        sink(memoryview(block))
                        self._note_server(block)
                stderr = process.stderr.read().decode()
            finally:
                process.kill()
        return Ended(process.wait(), "", stderr)

    def get(
        self,
        _api: Api,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        _seconds: float,
    ) -> Response:
        """Answer as the API server's proxy to the pod would."""
        found = re.fullmatch(r"pods/http:here:(\d+)/proxy/(.*)", path)
        assert found
        self.requests.append(found[2])
        if self.proxy_status != 200:
            return Recorded(self.proxy_status)
        self._before(["send", found[2]])
        url = f"http://127.0.0.1:{found[1]}/{found[2]}"
        timeout = urllib3.Timeout(60)
        answer = urllib3.request(
            "GET", url, fields=query, headers=headers, preload_content=False, timeout=timeout
        )
        return Recorded(answer.status, answer, self)

    def _note_server(self, answer: bytes) -> None:
        if found := re.search(rb'"process": (\d+)', answer):
            self.servers.append(int(found[1]))

    def end_servers(self) -> None:
        """End the servers that the pod's program has started."""
        for process in self.servers:
            os.kill(process, signal.SIGKILL)
        self.servers.clear()

    def _pass_on(self, block: bytes, sink: Sink) -> None:
        passed, is_cut = self.cut(block)
        sink(memoryview(passed))
        if is_cut:
            self._end()
            raise UnreachableError("the connection was cut: for the test")

    def cut(self, block: bytes) -> tuple[bytes, bool]:
        """Return the part of a block that passes, and whether the connection is cut after it."""
        with self._lock:
            is_cut = self._left is not None and self._left < len(block)
            passed = block[: self._left] if is_cut else block
            if is_cut:
                self._left = next(self._cuts, None)
            elif self._left is not None:
                self._left -= len(block)
            self.sent_bytes += len(block)
            self.cuts_made += is_cut
        return passed, is_cut


class Recorded:
    """An answer of the stand-in for the proxy; its body may be cut."""

    def __init__(
        self,
        status: int,
        answer: urllib3.BaseHTTPResponse | None = None,
        pod: LocalPod | None = None,
    ) -> None:
        self.status, self._answer, self._pod = status, answer, pod

    def stream(self, amt: int) -> Iterator[bytes]:
        assert amt > 0
        assert self._answer
        assert self._pod
        for block in self._answer.stream(BLOCK_BYTES):
            passed, is_cut = self._pod.cut(block)
            yield passed
            if is_cut:
                raise urllib3.exceptions.ProtocolError("cut for the test")

    def close(self) -> None:
        if self._answer:
            self._answer.close()


def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ranges and batches so small that a small file has many of them."""
    monkeypatch.setattr(partial, "RANGE_BYTES", RANGE_BYTES)
    monkeypatch.setattr(batches, "BATCH_BYTES", RANGE_BYTES)


def fetch(
    monkeypatch: pytest.MonkeyPatch,
    pod: LocalPod,
    run: Path,
    to: Path,
    choice: str = "latest",
    say: Callable[[str], None] = lambda line: None,
    how: str = EXEC,
) -> Brought:
    """Do what the command `fetch` does, without a cluster."""
    monkeypatch.setattr("cli.volume_pod.stream", pod.stream)
    api = Api(Access("not used"))
    pod_here = VolumePod(api, "pods/here", "fetch", from_volume.program())
    source = PodSource(pod_here, how, say, pod.get)
    try:
        return Bringer(source, str(run), Folder(to, run.name), choice, 4, say).bring()
    finally:
        pod.end_servers()


def make_run(run: Path, steps: Iterable[int] = (100,), model_bytes: int = 100_000) -> Path:
    """Make a run's folder as the trainer leaves it, with random bytes in its files."""
    (run / "tensorboard").mkdir(parents=True)
    (run / "run.yaml").write_text("run_name: demo\ntrain:\n  max_steps: 300\n")
    (run / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": s, "loss": 1.0}) + "\n" for s in range(100))
    )
    event = (5).to_bytes(8, "little") + b"crc." + b"event" + b"crc."
    (run / "tensorboard" / "events.out.tfevents.1").write_bytes(event * 3)
    (run / "run.lock").write_text("{}")
    for step in steps:
        add_checkpoint(run, step, model_bytes)
    return run


def add_checkpoint(
    run: Path, step: int, model_bytes: int = 100_000, val_loss: float | None = None
) -> Path:
    """Make a complete checkpoint with random bytes, and return its folder."""
    directory = run / "checkpoints" / f"step-{step:08d}"
    directory.mkdir(parents=True)
    contents: dict[str, bytes] = {
        "model-00000.bin": os.urandom(model_bytes),
        "optimizer-00000.bin": os.urandom(model_bytes // 2),
        "layout.json": b"{}",
        "state.json": json.dumps({"step": step, "val_loss": val_loss}).encode(),
    }
    entries: dict[str, Any] = {}
    for name, content in contents.items():
        (directory / name).write_bytes(content)
        entries[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (directory / "manifest.json").write_text(json.dumps({"files": entries}))
    return directory


def contents(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files below a folder, except the fetch's own record and
    run.lock.
    """
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (".disttrain-fetch.json", "run.lock")
    }
