"""The preparation of a data set from a real HTTP server on loopback."""

from __future__ import annotations

import hashlib
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.lab import prepare_training_text
from trainer.config import RunConfig
from trainer.data.dataset import open_dataset
from trainer.data.download import ATTEMPTS
from trainer.data.prepare import prepare
from trainer.data.tokenizer import CharTokenizer
from trainer.data.work_folder import work_folder
from trainer.launch.exit_codes import FatalError, RetryableError

TEXT = "".join(f"line {number}: to be or not to be\n" for number in range(200)).encode()
SHA256 = hashlib.sha256(TEXT).hexdigest()
VOCAB_OF_PLAYS = 86


@dataclass
class Server:
    """Answers as `answer` says and counts the requests."""

    address: str = ""
    requests: int = 0
    paths: list[str] = field(default_factory=list[str])
    answer: Callable[[http.server.BaseHTTPRequestHandler], None] | None = None


def full(handler: http.server.BaseHTTPRequestHandler) -> None:
    send(handler, 200, TEXT, len(TEXT))


def send(
    handler: http.server.BaseHTTPRequestHandler, status: int, body: bytes, length: int
) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(length))
    handler.end_headers()
    handler.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield the running server, which answers with the whole text unless the test changes that."""
    state = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests += 1
            state.paths.append(self.path)
            assert state.answer is not None
            state.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output clean."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        state.address = f"http://127.0.0.1:{httpd.server_address[1]}/text.txt"
        state.answer = full
        yield state
        httpd.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the proxies of the environment."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def config(root: Path, **dataset: Any) -> RunConfig:
    """Return a run with these settings of the data set."""
    values = {"name": "text", "tokenizer": "char", **dataset}
    return RunConfig.from_mapping({"data_root": str(root), "dataset": values})


def assert_nothing_left(root: Path) -> None:
    """Assert that no file or folder is left below the data root."""
    assert [path for path in root.rglob("*") if path != root / "datasets"] == []


def never(seconds: float) -> None:
    """Stand in for a pause before another try, and fail the test."""
    pytest.fail("tried again")


def test_a_dataset_is_tokens_that_decode_to_the_text(tmp_path: Path, server: Server) -> None:
    run = config(tmp_path, url=server.address, sha256=SHA256, size_bytes=len(TEXT))
    prepare(run)
    dataset = open_dataset(run.dataset_dir)
    tokens = np.concatenate([dataset.train, dataset.val]).tolist()
    assert dataset.tokenizer.decode(tokens) == TEXT.decode()
    assert len(dataset.train) == int(len(TEXT) * 0.9)
    assert dataset.val_bytes == len(dataset.val)
    assert [path.name for path in (tmp_path / "datasets").iterdir()] == ["text"]


def test_a_prepared_dataset_is_not_fetched_again(tmp_path: Path, server: Server) -> None:
    for _ in range(2):
        prepare(config(tmp_path, url=server.address, sha256=SHA256))
    assert server.requests == 1


def test_a_damaged_or_other_dataset_is_replaced(tmp_path: Path, server: Server) -> None:
    """A data set that is damaged, or was made with other settings, is prepared again."""
    run = config(tmp_path, url=server.address, sha256=SHA256)
    prepare(run)
    (run.dataset_dir / "val.bin").write_bytes(b"x")
    prepare(run)
    assert len(open_dataset(run.dataset_dir).val) == len(TEXT) - int(len(TEXT) * 0.9)
    other = tmp_path / "other.txt"
    other.write_text("another text " * 20)
    prepare(config(tmp_path, file=str(other)))
    assert len(open_dataset(run.dataset_dir).train) == int(13 * 20 * 0.9)
    assert [path.name for path in (tmp_path / "datasets").iterdir()] == ["text"]


def test_a_dataset_that_another_process_has_just_made_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While this process waits, another one makes a data set of the same name from other text. This
    process fails then, and says why. Of two runs that begin at the same moment, the other one would
    otherwise lose its data.
    """
    for name in ("ours", "theirs"):
        (tmp_path / name).write_text(f"{name} " * 50)
    ours, theirs = (config(tmp_path, file=str(tmp_path / name)) for name in ("ours", "theirs"))

    @contextmanager
    def after_the_other(directory: Path) -> Iterator[Path]:
        monkeypatch.setattr("trainer.data.prepare.work_folder", work_folder)
        prepare(theirs)
        with work_folder(directory) as folder:
            yield folder

    monkeypatch.setattr("trainer.data.prepare.work_folder", after_the_other)
    with pytest.raises(FatalError, match=r"dataset\.name: 'text' .*\(its files are other ones\)"):
        prepare(ours)
    dataset = open_dataset(theirs.dataset_dir)
    assert dataset.tokenizer.decode(dataset.train.tolist()).startswith("theirs ")
    assert [path.name for path in (tmp_path / "datasets").iterdir()] == ["text"]
    prepare(ours)  # A data set that was there before may be replaced: its run may be gone.
    dataset = open_dataset(ours.dataset_dir)
    assert dataset.tokenizer.decode(dataset.train.tolist()).startswith("ours ")


@pytest.mark.parametrize("status", [404, 403, 407, 204])
def test_a_final_answer_other_than_200_fails_at_once(
    tmp_path: Path, server: Server, status: int
) -> None:
    server.answer = lambda handler: send(handler, status, b"", 0)
    with pytest.raises(FatalError, match=f"dataset.url: {server.address} answered {status}"):
        prepare(config(tmp_path, url=server.address), sleep=never)
    assert_nothing_left(tmp_path)


def test_a_wrong_checksum_names_both(tmp_path: Path, server: Server) -> None:
    with pytest.raises(FatalError, match=f"wrong checksum: {'0' * 64} .* has {SHA256}"):
        prepare(config(tmp_path, url=server.address, sha256="0" * 64), sleep=never)
    assert_nothing_left(tmp_path)


def test_a_wrong_size_is_reported(tmp_path: Path, server: Server) -> None:
    with pytest.raises(FatalError, match=rf"size_bytes: 5 was asked for, .* {len(TEXT)} bytes"):
        prepare(config(tmp_path, url=server.address, size_bytes=5), sleep=never)
    assert_nothing_left(tmp_path)


def test_a_download_that_breaks_off_is_tried_again_and_then_reported(
    tmp_path: Path, server: Server
) -> None:
    server.answer = lambda handler: send(handler, 200, TEXT[:1000], len(TEXT))
    pauses: list[float] = []
    with pytest.raises(RetryableError, match=rf"broke off after 1000 of {len(TEXT)} bytes"):
        prepare(config(tmp_path, url=server.address), sleep=pauses.append)
    assert server.requests == ATTEMPTS
    assert pauses == [1, 2, 4, 8]
    assert_nothing_left(tmp_path)


def test_a_busy_server_is_asked_again_until_it_answers(tmp_path: Path, server: Server) -> None:
    def busy_twice(handler: http.server.BaseHTTPRequestHandler) -> None:
        if server.requests <= 2:
            send(handler, 503, b"", 0)
        else:
            full(handler)

    server.answer = busy_twice
    prepare(config(tmp_path, url=server.address, sha256=SHA256), sleep=lambda seconds: None)
    assert server.requests == 3


def test_an_unreachable_server_is_a_retryable_failure(tmp_path: Path) -> None:
    with pytest.raises(RetryableError, match="not reached"):
        prepare(config(tmp_path, url="http://127.0.0.1:9/x"), sleep=lambda seconds: None)
    assert_nothing_left(tmp_path)


def test_the_proxy_of_the_environment_is_used(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Downloads use the proxy of the environment."""
    monkeypatch.setenv("http_proxy", server.address.removesuffix("/text.txt"))
    prepare(config(tmp_path, url="http://text.invalid/a.txt", sha256=SHA256))
    assert server.paths == ["http://text.invalid/a.txt"]


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"\xff\xfe\xfa" * 50, "not UTF-8"), (b"abc", "too short"), (None, "cannot be read")],
)
def test_a_file_that_is_no_text_is_refused(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "elsewhere"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FatalError, match=words):
        prepare(config(tmp_path / "root", file=str(path)))
    assert_nothing_left(tmp_path / "root")


def test_a_dataset_with_a_cut_file_is_not_opened(tmp_path: Path, server: Server) -> None:
    """A data set whose token file is too short is refused with the name of the file."""
    run = config(tmp_path, url=server.address)
    prepare(run)
    (run.dataset_dir / "train.bin").write_bytes(b"xx")
    with pytest.raises(FatalError, match=r"train.bin has 2 bytes, meta.json says"):
        open_dataset(run.dataset_dir)


def test_the_metadata_say_what_is_in_the_files(tmp_path: Path, server: Server) -> None:
    run = config(tmp_path, url=server.address)
    prepare(run)
    meta = json.loads((run.dataset_dir / "meta.json").read_text())
    assert meta["request"]["sources"] == [{"url": server.address}]
    assert [(file["size_bytes"], file["sha256"]) for file in meta["files"]] == [(len(TEXT), SHA256)]
    assert set(meta["splits"]) == {"train", "val"}
    for split, entry in meta["splits"].items():
        content = (run.dataset_dir / f"{split}.bin").read_bytes()
        assert len(content) == 2 * entry["tokens"]
        assert hashlib.sha256(content).hexdigest() == entry["sha256"]


def test_tiny_shakespeare_has_the_token_counts_of_nanogpt(tmp_path: Path) -> None:
    """The text of the preset is divided into as many tokens as nanoGPT's. Where it cannot be
    downloaded, other plays of the same size take its place.
    """
    dataset, is_real = prepare_training_text("shakespeare-char", tmp_path)
    assert len(dataset.train) == 1_003_854  # the plays are cut to the same size
    assert len(dataset.val) == 111_540
    assert dataset.tokenizer.vocab_size == (65 if is_real else VOCAB_OF_PLAYS)


def test_characters_survive_encoding_and_unknown_ones_are_named() -> None:
    text = "naïve 😀\nabc"
    tokenizer = CharTokenizer("".join(sorted(set(text))))
    assert tokenizer.decode(tokenizer.encode(text).tolist()) == text
    with pytest.raises(ValueError, match="'xz' cannot be used: the text of the training"):
        tokenizer.encode("abxz")


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    """A vocabulary of more than 65,536 entries is stored in four bytes for each token. Two bytes
    would wrap around silently.
    """
    many = "".join(map(chr, [*range(32, 0xD800), *range(0xE000, 0x13000)]))
    (tmp_path / "text").write_text(many * 2)
    run = config(tmp_path, file=str(tmp_path / "text"))
    prepare(run)
    dataset = open_dataset(run.dataset_dir)
    assert dataset.train.dtype == np.dtype("<u4")
    tokens = np.concatenate([dataset.train, dataset.val]).tolist()
    assert dataset.tokenizer.decode(tokens) == many * 2


def test_commands_that_need_no_torch_do_not_import_it() -> None:
    """The modules of the entrypoint and of the preparation do not import torch."""
    program = (
        "import sys, trainer.__main__, trainer.data.prepare, trainer.launch.entrypoint;"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
