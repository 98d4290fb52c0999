"""How a file is downloaded from a real web server on the loopback: completely, with its checksum,
through the caller's proxy, and tried again.
"""

import hashlib
import http.client
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.airgap import download as downloading
from infra.airgap.download import DownloadAccess, DownloadError, download, listed_sha256
from sandbox.pki import Certificate, make_pki
from tests.cli.servers import Page, web_server
from tests.unit.airgap.web import Web, serving

CONTENT = b"x" * 3_000_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """Yield a server with the file, without pauses between the tries."""
    monkeypatch.setattr(downloading.time, "sleep", lambda _: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving() as web:
        web.files["/file"] = CONTENT
        yield web


def test_file_comes_whole_with_its_checksum(web: Web, tmp_path: Path) -> None:
    assert download(f"{web.url}/file", tmp_path / "file", SHA256) == SHA256
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_broken_off_transfer_is_tried_again(web: Web, tmp_path: Path) -> None:
    web.cut["/file"], web.status["/file"] = 1, [200, 503]
    download(f"{web.url}/file", tmp_path / "file", SHA256)
    assert web.requests == ["/file"] * 3
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_transfer_that_always_breaks_off_is_an_error(web: Web, tmp_path: Path) -> None:
    web.cut["/file"] = 100
    with pytest.raises(DownloadError, match=r"broke off|IncompleteRead"):
        download(f"{web.url}/file", tmp_path / "file")
    assert len(web.requests) == 3


def test_final_answer_is_not_asked_for_again(web: Web, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="/other: 404"):
        download(f"{web.url}/other", tmp_path / "file")
    assert len(web.requests) == 1


def test_other_content_is_refused_and_not_kept(web: Web, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=f"sha256 is {SHA256}, not {'0' * 64}"):
        download(f"{web.url}/file", tmp_path / "file", "0" * 64)
    assert not (tmp_path / "file").exists()


def test_password_in_an_address_is_not_shown(web: Web, tmp_path: Path) -> None:
    address = web.url.replace("//", "//user:hunter2@")
    with pytest.raises(DownloadError) as failure:
        download(f"{address}/other", tmp_path / "file")
    assert "hunter2" not in str(failure.value)


def test_redirection_from_https_to_http_is_refused() -> None:
    request = urllib.request.Request("https://a.example/k3s")
    follow = downloading._NoDowngrade().redirect_request  # pyright: ignore[reportPrivateUsage]
    headers = http.client.HTTPMessage()
    with pytest.raises(DownloadError, match=r"redirected to http://b\.example/k3s"):
        follow(request, None, 302, "Found", headers, "http://b.example/k3s")
    assert follow(request, None, 302, "Found", headers, "https://b.example/k3s") is not None


def test_checksum_is_found_by_the_whole_name() -> None:
    listed = f"{'1' * 64}  k3s-arm64\n{'2' * 64} *k3s\n"
    assert listed_sha256(listed, "k3s", "sums") == "2" * 64
    with pytest.raises(DownloadError, match="sums does not name k3s-s390x"):
        listed_sha256(listed, "k3s-s390x", "sums")


def test_callers_proxy_leads_to_the_address(web: Web, tmp_path: Path) -> None:
    """A download goes through the caller's proxy, which gets the whole address, and does not heed
    the proxy variables of this process.
    """
    address = "http://publisher.example/file"
    web.files[address] = CONTENT
    access = DownloadAccess({"http_proxy": web.url, "no_proxy": "other.example"})
    download(address, tmp_path / "file", SHA256, access)
    assert web.requests == [address]


def test_callers_authority_is_trusted_beside_the_usual_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A download trusts the caller's authorities; without them the same server is refused."""
    monkeypatch.setattr(downloading.time, "sleep", lambda _: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    certificate = Certificate("server", "web", "serverAuth", alternative_names=("IP:127.0.0.1",))
    pki = tmp_path / "a" / "pki"
    make_pki(pki, [certificate])
    both = tmp_path / "both.pem"
    both.write_text((pki / "server.crt").read_text() + (pki / "server.key").read_text())
    with web_server(both) as port:
        address = f"https://127.0.0.1:{port}/file"
        download(address, tmp_path / "file", "", DownloadAccess({}, (pki / "ca.crt").read_text()))
        assert (tmp_path / "file").read_bytes() == Page.text
        with pytest.raises(DownloadError, match="CERTIFICATE_VERIFY_FAILED"):
            download(address, tmp_path / "file", "", DownloadAccess({}))
