"""Downloads a file, whole and checked. Proxies and authorities come from the usual variables."""

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 30  # of the connection, and of each read
ATTEMPTS = 3
BLOCK_BYTES = 1 << 20
_TRANSIENT_STATUS = (408, 425, 429, 500, 502, 503, 504)


class DownloadError(RuntimeError):
    """The file cannot be had, or is another one; the text names the address."""


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follows a redirection, but not from https to http."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: object,
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if req.full_url.startswith("https:") and not newurl.startswith("https:"):
            raise DownloadError(
                f"{shown(req.full_url)}: redirected to {newurl}, which is not https"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # pyright: ignore[reportArgumentType]


def download(url: str, target: Path, expected_sha256: str = "") -> str:
    """Fetch `url` into the new file `target`.

    Returns:
        The sha256 of what came.

    Raises:
        DownloadError: no answer, a refusal, a broken-off transfer (each after several attempts
            where that can help), or another checksum.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            got = _fetch(url, target)
            break
        except urllib.error.HTTPError as error:
            if error.code not in _TRANSIENT_STATUS or attempt == ATTEMPTS:
                raise DownloadError(f"{shown(url)}: {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            if attempt == ATTEMPTS:
                reason = getattr(error, "reason", None) or error
                raise DownloadError(f"{shown(url)}: {reason} ({ATTEMPTS} attempts)") from error
        time.sleep(attempt)
    else:
        raise AssertionError("unreachable")
    if expected_sha256 and got != expected_sha256:
        target.unlink()
        raise DownloadError(f"{shown(url)}: sha256 is {got}, not {expected_sha256}")
    return got


def downloaded_text(url: str, scratch: Path) -> str:
    """A small text, such as a list of checksums.

    Raises:
        DownloadError: as `download`.
    """
    download(url, scratch)
    text = scratch.read_text()
    scratch.unlink()
    return text


def listed_sha256(checksums: str, name: str, where: str) -> str:
    """The sum of a file in a list as `sha256sum` writes it.

    Raises:
        DownloadError: it is not in there.
    """
    for line in checksums.splitlines():
        words = line.split()
        if len(words) == 2 and words[1].removeprefix("*") == name:
            return words[0].lower()
    raise DownloadError(f"{where} names no {name}")


def shown(url: str) -> str:
    """The address without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _fetch(url: str, target: Path) -> str:
    digest = hashlib.sha256()
    request = urllib.request.Request(url, headers={"User-Agent": "disttrain"})
    with (
        urllib.request.build_opener(_NoDowngrade).open(request, timeout=TIMEOUT_SECONDS) as answer,
        target.open("wb") as file,
    ):
        expected = answer.headers.get("Content-Length")
        while block := answer.read(BLOCK_BYTES):
            digest.update(block)
            file.write(block)
        if expected is not None and file.tell() != int(expected):
            raise http.client.HTTPException(f"broke off after {file.tell()} of {expected} bytes")
    return digest.hexdigest()
