"""Which k3s the node tests install. The release host is a stand-in on this machine."""

import functools
import hashlib
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.node.releases import VERSION, Publisher, Source, choose

INSTALLER = b"#!/bin/sh\n"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def publisher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    """Yield a release host with one version. The download cache is the test's own."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISTTRAIN_CACHE", str(tmp_path / "cache"))
    handler = functools.partial(Quiet, directory=str(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    made = Publisher(f"{address}/download", f"{address}/raw")
    for release in made.files(VERSION):
        content = INSTALLER if release.url.endswith(".sh") else b"the real k3s"
        file = in_folder(tmp_path, release.url)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        sums = in_folder(tmp_path, release.checksums_url)
        with sums.open("a") as listed:
            listed.write(f"{hashlib.sha256(content).hexdigest()}  {file.name}\n")
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def in_folder(folder: Path, url: str) -> Path:
    """Return where the release host has the file of this address."""
    return folder / url.split("/", 3)[3].replace("%2B", "+")


def test_host_that_answers_is_taken_and_its_files_are_verified_and_kept(
    publisher: Publisher, tmp_path: Path
) -> None:
    source = choose(publisher)
    assert str(source) == "k3s itself"
    source.fill(VERSION, tmp_path / "first")
    for release in publisher.files(VERSION):
        in_folder(tmp_path, release.url).unlink()  # The second time uses the cache.
    source.fill(VERSION, tmp_path / "second")
    assert (tmp_path / "second" / "install.sh").read_bytes() == INSTALLER
    binary = publisher.files(VERSION)[0].url.rpartition("/")[2]
    assert (tmp_path / "second" / binary).read_bytes() == b"the real k3s"
    names = sorted(file.name for file in (tmp_path / "second").iterdir())
    wanted = [url for r in publisher.files(VERSION) for url in (r.url, r.checksums_url)]
    assert names == sorted({url.rpartition("/")[2] for url in wanted})


def test_file_that_is_not_what_the_publisher_says_is_refused(
    publisher: Publisher, tmp_path: Path
) -> None:
    binary = publisher.files(VERSION)[0]
    in_folder(tmp_path, binary.url).write_bytes(b"another program")
    with pytest.raises(ValueError, match="the publisher says"):
        choose(publisher).fill(VERSION, tmp_path / "mirror")
    assert not (tmp_path / "mirror").exists()


def test_host_that_does_not_answer_leaves_the_stand_ins(tmp_path: Path) -> None:
    source = choose(Publisher("http://127.0.0.1:9/download", "http://127.0.0.1:9/raw"))
    assert source == Source(None, "127.0.0.1 does not answer")
    assert_stand_ins(source, tmp_path)


def assert_stand_ins(source: Source, tmp_path: Path) -> None:
    """Fail unless this source fills a folder with the stand-ins and their checksums."""
    (tmp_path / "mirror").mkdir()
    source.fill(VERSION, tmp_path / "mirror")
    content = (tmp_path / "mirror" / "k3s").read_bytes()
    sums = (tmp_path / "mirror" / "sha256sum-amd64.txt").read_text()
    assert f"{hashlib.sha256(content).hexdigest()}  k3s" in sums.splitlines()
    assert b"(stand-in)" in content


def test_release_host_without_the_version_leaves_the_stand_ins(
    publisher: Publisher, tmp_path: Path
) -> None:
    """A release host that has the binary and not its checksums (404) counts as one without the
    version: its files could not be verified, so the stand-ins are taken.
    """
    binary, *_ = publisher.files(VERSION)
    in_folder(tmp_path, binary.checksums_url).unlink()
    assert in_folder(tmp_path, binary.url).is_file()
    source = choose(publisher)
    assert source.publisher is None
    assert source.why == f"{binary.checksums_url}: HTTP Error 404: File not found"
    assert str(source) == f"stand-ins of k3s ({source.why})"
    assert_stand_ins(source, tmp_path)
