"""Downloads of several files from a real HTTP server on loopback that breaks connections."""

from __future__ import annotations

import errno
import gzip
import hashlib
import http.client
import http.server
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from trainer.config import RunConfig
from trainer.data import download, long_work
from trainer.data.dataset import open_dataset
from trainer.data.prepare import prepare
from trainer.launch.exit_codes import FatalError

FILES = {
    f"/part-{number}.txt": (f"part {number}: to be or not to be\n" * 3000).encode()
    for number in range(3)
}


@dataclass
class Server:
    """Serves `FILES` as a server of static files does, and breaks a connection off after
    `break_after_bytes`.
    """

    address: str = ""
    break_after_bytes: int | None = None
    etag: str | None = '"one"'
    offers_ranges: bool = True
    files: dict[str, bytes] = field(default_factory=lambda: dict(FILES))
    refused: str = ""
    busy: list[str] = field(default_factory=list[str])
    asked: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    sent_bytes: int = 0

    def answer(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        if self.busy:
            handler.send_response(429)
            handler.send_header("Retry-After", self.busy.pop(0))
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        if handler.path not in self.files:
            handler.send_error(403 if handler.path == self.refused else 404)
            return
        body, asked = self.files[handler.path], handler.headers.get("Range")
        self.asked.append((handler.path, asked))
        is_same = handler.headers.get("If-Range") == self.etag
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and is_same else 0
        start = start if self.offers_ranges else 0
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(body) - start))
        if self.etag:
            handler.send_header("ETag", self.etag)
        handler.end_headers()
        part = body[start:]
        if self.break_after_bytes is not None:
            part = part[: self.break_after_bytes]
        handler.wfile.write(part)
        self.sent_bytes += len(part)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Yield the running server. No proxy of the environment is used."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    state = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output clean."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        state.address = f"http://127.0.0.1:{httpd.server_address[1]}"
        yield state
        httpd.shutdown()
        thread.join()


def config(root: Path, server: Server, **changes: Any) -> RunConfig:
    """Return a run with the server's files as data set; `changes` are for the settings of the third
    file.
    """
    files = [
        {
            "url": server.address + path,
            "sha256": hashlib.sha256(body).hexdigest(),
            "size_bytes": len(body),
        }
        for path, body in FILES.items()
    ]
    files[2] |= changes
    return RunConfig.from_mapping(
        {"data_root": str(root), "dataset": {"name": "d", "files": files}}
    )


def no_pause(seconds: float) -> None:
    pass


def test_several_files_become_one_dataset(tmp_path: Path, server: Server) -> None:
    """Several files become one data set with an end of text after each, and are downloaded once."""
    run = config(tmp_path, server)
    prepare(run)
    dataset = open_dataset(run.dataset_dir)
    text = dataset.tokenizer.decode([*dataset.train.tolist(), *dataset.val.tolist()])
    assert text == "".join(body.decode() + "<|endoftext|>" for body in FILES.values())
    assert [path.name for path in (tmp_path / "datasets").iterdir()] == ["d"]
    prepare(run)
    assert len(server.asked) == 3


def test_connection_that_breaks_often_is_no_failure_while_bytes_come(
    tmp_path: Path, server: Server
) -> None:
    """Only attempts that bring no further bytes count as failures, so a large file comes over a
    connection that breaks more often than an attempt may fail.
    """
    server.break_after_bytes = len(FILES["/part-0.txt"]) // (download.ATTEMPTS + 2)
    prepare(config(tmp_path, server), workers=1, sleep=no_pause)
    assert len(server.asked) > len(FILES) * (download.ATTEMPTS + 1)


def test_a_broken_connection_goes_on_with_the_rest(tmp_path: Path, server: Server) -> None:
    """After a broken connection only the missing bytes are downloaded."""
    server.break_after_bytes = 40_000
    prepare(config(tmp_path, server), sleep=no_pause)
    assert server.sent_bytes == sum(map(len, FILES.values()))  # no byte came twice
    assert ("/part-0.txt", "bytes=40000-") in server.asked


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EHOSTUNREACH, "No route to host"),
        OSError(errno.ENETUNREACH, "Network is unreachable"),
        ssl.SSLError(1, "[SSL] record layer failure"),
    ],
    ids=lambda error: type(error).__name__ + str(error.errno),
)
def test_lost_network_in_body_is_retried(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """A network that fails in the middle of a file is tried again. Otherwise these errors would end
    the preparation for good, as if the disk had failed.
    """
    real, raised = http.client.HTTPResponse.read, list[OSError]()

    def fail_once(response: http.client.HTTPResponse, amount: int | None = None) -> bytes:
        if not raised:
            raised.append(error)
            raise error
        return real(response, amount)

    monkeypatch.setattr(http.client.HTTPResponse, "read", fail_once)
    run = config(tmp_path, server)
    prepare(run, sleep=no_pause)
    assert raised == [error]
    assert open_dataset(run.dataset_dir).train.size


def test_busy_server_is_waited_for_as_it_asks(tmp_path: Path, server: Server) -> None:
    """A server that is busy is asked again after the seconds that it names, but within 5 minutes.
    Otherwise all attempts would be over before it answers. A date or a word counts for nothing.
    """
    server.busy = ["40", "7200", "Thu, 01 Jan 2026 00:00:00 GMT"]
    waited = list[float]()
    prepare(config(tmp_path, server), sleep=waited.append)
    assert waited == [40, 300, 4]


def test_long_download_says_how_far_it_is(
    tmp_path: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A download, and the reading of all characters after it, print how far they are. `pulumi up`
    shows the last line, and a file of some hundred GB would look as if it hangs.
    """
    monkeypatch.setattr(long_work, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(download, "_BLOCK_BYTES", 50_000)
    server.break_after_bytes = 60_000
    prepare(config(tmp_path, server), sleep=no_pause)
    said, size = capsys.readouterr().out, len(FILES["/part-0.txt"])
    assert f"50,000 of {size:,} bytes of {server.address}/part-0.txt are here" in said
    assert f"{size:,} of {size:,} bytes of {server.address}/part-0.txt are here" in said
    assert "file 3 of 3: its characters are read" in said
    assert "file 3 of 3: " in said.rpartition("its characters are read")[2]  # the tokens


def test_a_later_start_goes_on_with_the_rest(tmp_path: Path, server: Server) -> None:
    """A start after an interrupted download downloads only the missing bytes."""
    server.break_after_bytes = 40_000

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(config(tmp_path, server), sleep=interrupt)
    assert server.sent_bytes == 40_000
    server.break_after_bytes = None
    prepare(config(tmp_path, server))
    assert server.sent_bytes == sum(map(len, FILES.values()))


def test_new_signed_address_goes_on_with_rest(tmp_path: Path, server: Server) -> None:
    """A signed address whose time is over is named as one. A new address of the same checksum only
    brings the missing bytes, because the content is the same.
    """
    body = FILES["/part-2.txt"]
    server.files, server.break_after_bytes = {"/part-2.txt?signature=one": body}, 40_000

    def expire(seconds: float) -> None:
        server.files, server.refused = {}, "/part-2.txt?signature=one"

    dataset = {"name": "d", "sha256": hashlib.sha256(body).hexdigest()}

    def run(signature: str) -> RunConfig:
        url = f"{server.address}/part-2.txt?signature={signature}"
        return RunConfig.from_mapping(
            {"data_root": str(tmp_path), "dataset": dataset | {"url": url}}
        )

    with pytest.raises(FatalError, match=r"answered 403 .* signed.* new one"):
        prepare(run("one"), sleep=expire)
    server.files, server.break_after_bytes = {"/part-2.txt?signature=two": body}, None
    prepare(run("two"))
    assert server.asked[-1] == ("/part-2.txt?signature=two", "bytes=40000-")
    assert server.sent_bytes == len(body)


def test_another_version_is_not_glued_to_the_first(tmp_path: Path, server: Server) -> None:
    """A file that changes on the server during its download is downloaded again from its begin."""
    server.break_after_bytes = 40_000

    def change(seconds: float) -> None:
        server.etag, server.break_after_bytes = '"two"', None

    prepare(config(tmp_path, server), sleep=change)
    assert server.sent_bytes == 40_000 + sum(map(len, FILES.values()))


def test_kill_at_new_version_keeps_none(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill right after the answer with another version of a file leaves no bytes of the old one.
    Otherwise they would be taken for the begin of the new file.
    """

    def interrupt(*unused: object) -> None:
        raise KeyboardInterrupt

    server.files["/part-0.txt"] = b"another version" * 6000
    server.break_after_bytes = 40_000
    with pytest.raises(KeyboardInterrupt):
        prepare(config(tmp_path, server), sleep=interrupt)
    server.files, server.etag, server.break_after_bytes = dict(FILES), '"two"', None
    with monkeypatch.context() as patch:
        patch.setattr(download, "_receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare(config(tmp_path, server))
    prepare(config(tmp_path, server))


@pytest.mark.parametrize("kind", ["no version", "no ranges"])
def test_servers_that_cannot_go_on_send_all_again(
    tmp_path: Path, server: Server, kind: str
) -> None:
    """From a server without versions (ETag) or without ranges a file is downloaded again from its
    begin.
    """
    server.break_after_bytes = 40_000
    if kind == "no version":
        server.etag = None
    else:
        server.offers_ranges = False

    def mend(seconds: float) -> None:
        server.break_after_bytes = None

    prepare(config(tmp_path, server), sleep=mend)
    assert server.sent_bytes == 40_000 + sum(map(len, FILES.values()))


def test_a_wrong_file_is_named_and_the_others_stay(tmp_path: Path, server: Server) -> None:
    """A file with a wrong checksum or size is named, and the next start downloads only that
    file.
    """
    with pytest.raises(FatalError, match=r"dataset.files\[2\].sha256: wrong checksum: 000"):
        prepare(config(tmp_path, server, sha256="0" * 64))
    with pytest.raises(FatalError, match=r"dataset.files\[2\].size_bytes: 5 was asked for"):
        prepare(config(tmp_path, server, size_bytes=5))
    server.asked.clear()
    prepare(config(tmp_path, server))
    assert [path for path, _ in server.asked] == ["/part-2.txt"]


def test_a_missing_file_is_named(tmp_path: Path, server: Server) -> None:
    with pytest.raises(FatalError, match=r"dataset.files\[2\].url: .*/part-9.txt answered 404"):
        prepare(config(tmp_path, server, url=f"{server.address}/part-9.txt"))


PAGE = b"\n <!DOCTYPE html><html><body>Please log in</body></html>"


def parquet_file(folder: Path) -> bytes:
    """Return the content of a parquet file with documents."""
    table = pyarrow.table({"text": ["to be or not to be"] * 9})
    pyarrow.parquet.write_table(table, folder / "table")
    return (folder / "table").read_bytes()


@pytest.mark.parametrize("name", ["a.parquet", "half.parquet", "a.txt", "a.jsonl", "a.txt.gz"])
def test_page_instead_of_file_is_not_kept(tmp_path: Path, server: Server, name: str) -> None:
    """A page of a proxy or a part of a table, which came instead of a file without a checksum, is
    named and removed. Otherwise each later start would fail by it, or a run would learn the page.
    """
    right = {
        ".parquet": parquet_file(tmp_path),
        ".txt": b"to be or not to be " * 9,
        ".jsonl": b'{"text": "to be or not to be"}\n' * 9,
        ".gz": gzip.compress(b"to be or not to be " * 9, mtime=0),
    }[Path(name).suffix]
    server.files = {f"/{name}": right[:-4] if name.startswith("half") else PAGE}
    dataset = {"name": "d", "files": [{"url": f"{server.address}/{name}"}]}
    run = RunConfig.from_mapping({"data_root": str(tmp_path), "dataset": dataset})
    with pytest.raises(FatalError, match=r"dataset.files\[0\].url: .* is no .* removed"):
        prepare(run)
    server.files = {f"/{name}": right}
    prepare(run)
    assert open_dataset(run.dataset_dir).train.size


@pytest.mark.parametrize("kind", ["name", "checksum"])
def test_pages_are_data_if_asked_for(tmp_path: Path, server: Server, kind: str) -> None:
    """A page can be a data set if its name says that it is one, or if its checksum is set."""
    name = "page.html" if kind == "name" else "page"
    server.files = {f"/{name}": PAGE * 9}
    sha256 = hashlib.sha256(PAGE * 9).hexdigest() if kind == "checksum" else None
    dataset = {"name": "d", "url": f"{server.address}/{name}", "sha256": sha256}
    run = RunConfig.from_mapping({"data_root": str(tmp_path), "dataset": dataset})
    prepare(run)
    assert open_dataset(run.dataset_dir).train.size
