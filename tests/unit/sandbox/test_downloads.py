"""How the sandbox checks and installs releases. The downloads are stand-ins."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from sandbox import downloads
from sandbox.downloads import Release, Unavailable, expected_sha256, install_release

SUM = "a" * 64
URL = "https://releases.example/tool.tar.gz"
SUMS_URL = "https://releases.example/sums"


@pytest.mark.parametrize(
    "text",
    [
        f"{SUM}  tool.tar.gz\n",
        f"{'b' * 64}  other.tar.gz\n{SUM.upper()} *tool.tar.gz\n",
        f"{SUM}\n",
    ],
)
def test_checksum_files_of_all_publishers_are_read(text: str) -> None:
    assert expected_sha256(text, "tool.tar.gz") == SUM


def test_checksum_file_without_the_file_makes_the_release_unavailable() -> None:
    with pytest.raises(Unavailable, match=r"tool\.tar\.gz"):
        expected_sha256(f"{SUM}  other.tar.gz\n", "tool.tar.gz")


def archive(program: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        entry = tarfile.TarInfo("tool-1/tool")
        entry.size = len(program)
        tar.addfile(entry, io.BytesIO(program))
    return buffer.getvalue()


def serve(monkeypatch: pytest.MonkeyPatch, body: bytes, checksum: str) -> Release:
    """Return a release whose archive and checksum file have these contents."""
    answers = {URL: body, SUMS_URL: f"{checksum}  tool.tar.gz\n".encode()}
    monkeypatch.setattr(downloads, "fetch", answers.__getitem__)
    return Release(URL, SUMS_URL, {"tool-1/tool": "tool"})


def test_verified_release_is_installed_executable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    body = archive(b"program")
    release = serve(monkeypatch, body, hashlib.sha256(body).hexdigest())
    install_release(release, tmp_path, "unused")
    assert (tmp_path / "tool").read_bytes() == b"program"
    assert (tmp_path / "tool").stat().st_mode & 0o111


def test_archive_without_the_program_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A release whose archive lacks the program counts as unavailable, so that the caller tries
    another way. Otherwise it would end with a traceback.
    """
    body = archive(b"program")
    release = serve(monkeypatch, body, hashlib.sha256(body).hexdigest())
    with pytest.raises(Unavailable, match=r"tool\.tar\.gz has no file tool-2/tool"):
        install_release(Release(release.url, SUMS_URL, {"tool-2/tool": "tool"}), tmp_path, "unused")


def test_release_with_another_checksum_is_refused_and_nothing_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    release = serve(monkeypatch, archive(b"tampered"), SUM)
    with pytest.raises(ValueError, match=SUM):
        install_release(release, tmp_path, "unused")
    assert list(tmp_path.iterdir()) == []
