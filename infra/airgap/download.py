"""Downloads a file and checks its checksum.

Proxies and trusted authorities are those of the usual variables, unless the caller gives others.
"""

import hashlib
import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from infra.image.authorities import trust
from infra.image.registry.proxies import proxy_of

TIMEOUT_SECONDS = 30  # for the connection, and for each read
ATTEMPTS = 3
BLOCK_BYTES = 1 << 20
_TRANSIENT_STATUS = (408, 425, 429, 500, 502, 503, 504)


class DownloadError(RuntimeError):
    """The file could not be downloaded, or its checksum is wrong. The text names the address."""


class _NoDowngrade(urllib.request.HTTPRedirectHandler):
    """Follows redirections, but refuses one from https to http."""

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
                f"{without_credentials(req.full_url)}: redirected to "
                f"{without_credentials(newurl)}, which is not https"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True)
class DownloadAccess:
    """How this machine reaches an address, if the usual variables do not say everything.

    Args:
        environment: all variables that name proxies, including those of this process.
        authorities: certificates (PEM) that are trusted in addition to the usual ones.
    """

    environment: Mapping[str, str]
    authorities: str = ""


def download(
    url: str, target: Path, expected_sha256: str = "", access: DownloadAccess | None = None
) -> str:
    """Download `url` into the new file `target`.

    Args:
        url: an http or https address.
        target: the file, which is overwritten if it exists.
        expected_sha256: the checksum in hexadecimal; empty: any content is accepted.
        access: the proxies and the authorities to trust; None: those of the usual variables.

    Returns:
        The sha256 of the file.

    Raises:
        DownloadError: there was no answer, an error status or an incomplete transfer, or the
            checksum differs. If another attempt can help, it comes after ATTEMPTS attempts.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            got = _fetch(url, target, access)
            break
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in _TRANSIENT_STATUS or attempt == ATTEMPTS:
                raise DownloadError(
                    f"{without_credentials(url)}: {error.code} {error.reason}"
                ) from error
        except (OSError, http.client.HTTPException) as error:
            if attempt == ATTEMPTS:
                reason = str(getattr(error, "reason", None) or error)
                # http.client takes the password for a port, and its message may hold it.
                if password := urlsplit(url).password:
                    reason = reason.replace(password, "[secret]")
                raise DownloadError(
                    f"{without_credentials(url)}: {reason} ({ATTEMPTS} attempts)"
                ) from error
        time.sleep(attempt)
    else:
        raise AssertionError("unreachable")
    if expected_sha256 and got != expected_sha256:
        target.unlink()
        raise DownloadError(f"{without_credentials(url)}: sha256 is {got}, not {expected_sha256}")
    return got


def download_text(url: str, scratch: Path) -> str:
    """Download a small text, such as a list of checksums, and return it.

    `scratch` is the path of a file that holds the content meanwhile.

    Raises:
        DownloadError: as for `download`.
    """
    download(url, scratch)
    text = scratch.read_text()
    scratch.unlink()
    return text


def listed_sha256(checksums: str, name: str, where: str) -> str:
    """Return the checksum of a file from a list in the form of `sha256sum`.

    Args:
        checksums: text of the list.
        name: name of the file.
        where: address of the list, for the error.

    Raises:
        DownloadError: the list does not name the file.
    """
    for line in checksums.splitlines():
        words = line.split()
        if len(words) == 2 and words[1].removeprefix("*") == name:
            return words[0].lower()
    raise DownloadError(f"{where} does not name {name}")


def without_credentials(url: str) -> str:
    """Return the address without user, password and query. The query can hold a token."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _opener(url: str, access: DownloadAccess | None) -> urllib.request.OpenerDirector:
    if access is None:
        return urllib.request.build_opener(_NoDowngrade)
    rest = url.partition("://")[2]
    proxies = {each: proxy_of(f"{each}://{rest}", access.environment) for each in ("http", "https")}
    by_proxy = urllib.request.ProxyHandler(
        {each: found for each, found in proxies.items() if found}
    )
    trusted = ssl.create_default_context()
    if access.authorities:
        trust(trusted, access.authorities)
    by_tls = urllib.request.HTTPSHandler(context=trusted)
    return urllib.request.build_opener(_NoDowngrade, by_proxy, by_tls)


def _fetch(url: str, target: Path, access: DownloadAccess | None) -> str:
    digest = hashlib.sha256()
    request = urllib.request.Request(url, headers={"User-Agent": "disttrain"})
    with (
        _opener(url, access).open(request, timeout=TIMEOUT_SECONDS) as answer,
        target.open("wb") as file,
    ):
        expected = answer.headers.get("Content-Length")
        while block := answer.read(BLOCK_BYTES):
            digest.update(block)
            file.write(block)
        if expected is not None and file.tell() != int(expected):
            raise http.client.HTTPException(f"broke off after {file.tell()} of {expected} bytes")
    return digest.hexdigest()
