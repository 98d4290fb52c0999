"""Downloads official releases from pinned addresses and checks the publisher's checksums."""

import functools
import hashlib
import socket
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

CONNECT_SECONDS = 4
READ_SECONDS = 60


class Unavailable(Exception):  # noqa: N818 - an answer, not an error: the caller has another way
    """The release cannot be downloaded from here; the text gives the reason."""


@dataclass(frozen=True)
class Release:
    """A file of a release.

    `members` maps members of the archive to program names. It is empty if the file is itself the
    program.
    """

    url: str
    checksums_url: str
    members: dict[str, str]


@functools.cache
def host_answers(host: str, port: int = 443) -> bool:
    """Whether a TCP connection to the host can be opened. This process asks each host only once.

    Behind a proxy the answer is always True, because only the request itself can tell.
    """
    proxy = urllib.request.getproxies().get("https")
    if proxy and not urllib.request.proxy_bypass(host):
        return True  # only the request itself can tell
    try:
        socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def fetch(url: str) -> bytes:
    """The body of the answer, if its status is 200.

    Raises:
        Unavailable: there is no connection, or the status is not 200.
    """
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    if not host_answers(host, parts.port or (80 if parts.scheme == "http" else 443)):
        raise Unavailable(f"{host} does not answer")
    try:
        with urllib.request.urlopen(url, timeout=READ_SECONDS) as answer:
            return answer.read()
    except (urllib.error.URLError, OSError) as error:
        raise Unavailable(f"{url}: {error}") from error


def expected_sha256(checksums: str, file_name: str) -> str:
    """The sha256 of `file_name` in a checksum file, which may also hold nothing but the checksum.

    Raises:
        Unavailable: the checksum file does not name the file.
    """
    for line in checksums.splitlines():
        words = line.split()
        if len(words) == 1 and len(words[0]) == 64:
            return words[0].lower()
        if len(words) == 2 and words[1].lstrip("*./") == file_name:
            return words[0].lower()
    raise Unavailable(f"the publisher's checksum file does not name {file_name}")


def install_release(release: Release, bin_dir: Path, default_name: str) -> None:
    """Download a release, check its sha256, and put its programs into `bin_dir`.

    Raises:
        Unavailable: the release or its checksum cannot be downloaded.
        ValueError: the checksum differs from the publisher's.
    """
    file_name = release.url.rsplit("/", 1)[1]
    wanted = expected_sha256(fetch(release.checksums_url).decode(), file_name)
    body = fetch(release.url)
    got = hashlib.sha256(body).hexdigest()
    if got != wanted:
        raise ValueError(f"{release.url}: sha256 is {got}, the publisher says {wanted}")
    if not release.members:
        _write_program(bin_dir / default_name, body)
        return
    with tarfile.open(fileobj=BytesIO(body)) as archive:
        for member, program in release.members.items():
            content = archive.extractfile(member) if member in archive.getnames() else None
            if content is None:
                raise Unavailable(f"{file_name} has no file {member}")
            _write_program(bin_dir / program, content.read())


def _write_program(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o755)
