"""Downloads a file to disk, resumes after a broken connection, and checks size and checksum."""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import os
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainer.checkpoint.durable import fsync_directory, write_json
from trainer.config import SourceUrl
from trainer.data.long_work import LongWork
from trainer.launch.exit_codes import FatalError, RetryableError

ATTEMPTS = 5
_SOCKET_TIMEOUT_SECONDS = 30
_LONGEST_PAUSE_SECONDS = 300
_TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}
_REFUSALS = {401, 403}
_NETWORK_ERRORS = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)
_BLOCK_BYTES = 2**20


class _BusyError(RetryableError):
    """The server is busy, and asks to wait for some seconds (the header Retry-After)."""

    def __init__(self, text: str, seconds: int) -> None:
        super().__init__(text)
        self.seconds = seconds


def download(source: SourceUrl, path: Path, setting: str, sleep: Callable[[float], None]) -> str:
    """Download the file at `source.url` to `path`, unless `path` exists already.

    `<path>.part` keeps the bytes that came so far. Beside it, `<path>.part.version` keeps the
    server's name for that version of the file. So a later attempt, or a later process, requests
    only the rest. HTTP_PROXY, HTTPS_PROXY and NO_PROXY are obeyed.

    Args:
        source: The address of the file, and its size and checksum if they are known.
        path: The file to write.
        setting: The name of the setting with the address, for messages.
        sleep: Waits for a number of seconds between two attempts.

    Returns:
        The sha256 of the file.

    Raises:
        FatalError: The server gave a final answer such as 404, or size or checksum are wrong.
        RetryableError: ATTEMPTS attempts in a row brought no further bytes.
    """
    if path.exists():
        return _digest(path).hexdigest()  # It was checked before it was given this name.
    part = path.with_name(f"{path.name}.part")
    failures = 0
    while True:
        there = _resumable_bytes(part)
        rest = f", from byte {there:,}" if there else ""
        print(f"downloading {source.url}{rest} (attempt {failures + 1} of {ATTEMPTS})", flush=True)
        try:
            digest = _fetch(source.url, part, setting)
            break
        except RetryableError as error:
            failures = 1 if _resumable_bytes(part) > there else failures + 1
            if failures >= ATTEMPTS:
                if not _resumable_bytes(part):
                    _forget(part)
                raise RetryableError(f"{error} ({ATTEMPTS} attempts)") from error
            asked_for = error.seconds if isinstance(error, _BusyError) else 0
            pause = max(2 ** (failures - 1), asked_for)
            print(f"{error}; trying again in {pause} s", flush=True)
            sleep(pause)
    try:
        check_content(source, part.stat().st_size, digest, setting)
    except FatalError:
        _forget(part)
        raise
    part.replace(path)
    fsync_directory(path.parent)
    _forget(part)
    return digest


def check_content(source: SourceUrl, size_bytes: int, sha256: str, setting: str) -> None:
    """Raise FatalError unless size and checksum are those in `source`, as far as they are given."""
    section = setting.rpartition(".")[0]
    if source.size_bytes is not None and size_bytes != source.size_bytes:
        raise FatalError(
            f"{section}.size_bytes: {source.size_bytes} was asked for, the file has {size_bytes} "
            "bytes (truncated or another file?)"
        )
    if source.sha256 is None:
        print(f"{section}.sha256 is not set; this file has {sha256}", flush=True)
    elif sha256 != source.sha256:
        raise FatalError(
            f"{section}.sha256: wrong checksum: {source.sha256} was asked for, the file "
            f"({size_bytes} bytes) has {sha256}"
        )


def sha256_of_file(path: Path) -> str:
    """Return the sha256 of a file of any size, read in blocks."""
    return _digest(path).hexdigest()


def _fetch(url: str, part: Path, setting: str) -> str:
    """Make one attempt to complete `part`, and return the sha256 of the whole file."""
    there, version = _resumable_bytes(part), _version(part)
    headers = {"User-Agent": "disttrain"}
    if there:  # The server sends the rest only if the file is still the same.
        headers |= {"Range": f"bytes={there}-", "If-Range": version}
    request = urllib.request.Request(url, headers=headers)
    try:
        opener = urllib.request.build_opener()  # It reads the proxies of the environment.
        with opener.open(request, timeout=_SOCKET_TIMEOUT_SECONDS) as response:
            if response.status not in (http.client.OK, http.client.PARTIAL_CONTENT):
                raise FatalError(f"{setting}: {url} answered {response.status}, not 200")
            if response.status == http.client.OK:
                there = 0
                _forget(part)  # A kill must not leave the new version's name beside old bytes.
            _remember_version(part, response.headers)
            return _receive(response, part, there, setting, url)
    except urllib.error.HTTPError as error:
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and there:
            _forget(part)
            raise RetryableError(
                f"{setting}: {url} has no bytes after {there}; starting again"
            ) from error
        text = f"{setting}: {url} answered {error.code} {error.reason}, not 200"
        if error.code in _REFUSALS:
            text += ". If this address is signed, its time may be over: set a new one"
        if error.code not in _TRANSIENT_STATUS:
            raise FatalError(text) from error
        asked_for = error.headers.get("Retry-After", "")
        seconds = int(asked_for) if re.fullmatch("[0-9]{1,9}", asked_for) else 0
        raise _BusyError(text, min(seconds, _LONGEST_PAUSE_SECONDS)) from error
    except urllib.error.URLError as error:
        raise RetryableError(f"{setting}: {url} not reached: {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        # Other errors of the operating system are those of the disk to which the file is written.
        if isinstance(error, OSError) and not _is_of_network(error):
            raise
        raise RetryableError(f"{setting}: {url} failed: {error!r}") from error


def _is_of_network(error: OSError) -> bool:
    kinds = (ConnectionError, TimeoutError, ssl.SSLError)
    return isinstance(error, kinds) or error.errno in _NETWORK_ERRORS


def _receive(response: Any, part: Path, there: int, setting: str, url: str) -> str:
    """Append the body to the first `there` bytes of `part`, and return the sha256 of the file."""
    digest = _digest(part, there)
    expected = response.headers.get("Content-Length")
    of_all = "" if expected is None else f" of {there + int(expected):,}"
    work = LongWork()
    with part.open("r+b" if part.exists() else "wb") as file:
        file.truncate(there)
        file.seek(there)
        size = there
        while block := response.read(_BLOCK_BYTES):
            file.write(block)
            digest.update(block)
            size += len(block)
            if work.is_line_due():
                print(f"{size:,}{of_all} bytes of {url} are here", flush=True)
        file.flush()
        os.fsync(file.fileno())
    if expected is not None and size < there + int(expected):
        raise RetryableError(
            f"{setting}: {url} broke off after {size} of {there + int(expected)} bytes"
        )
    return digest.hexdigest()


def _digest(path: Path, size: int | None = None) -> Any:
    """Return the sha256 of the first `size` bytes of `path`, or of all its bytes."""
    digest = hashlib.sha256()
    left = size if size is not None else path.stat().st_size
    if left:
        with path.open("rb") as file:
            while left and (block := file.read(min(left, _BLOCK_BYTES))):
                digest.update(block)
                left -= len(block)
    return digest


def _version_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.version")


def _remember_version(part: Path, headers: Any) -> None:
    """Keep what identifies this version of the file: a strong ETag, else the date of its change."""
    tag = headers.get("ETag") or ""
    version = tag if tag and not tag.startswith("W/") else headers.get("Last-Modified") or ""
    write_json(_version_file(part), version)


def _version(part: Path) -> str:
    try:
        return str(json.loads(_version_file(part).read_text()))
    except (FileNotFoundError, ValueError):
        return ""


def _resumable_bytes(part: Path) -> int:
    """Return the size of `part`, or 0 if the server cannot send the rest of the same file."""
    return part.stat().st_size if part.exists() and _version(part) else 0


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _version_file(part).unlink(missing_ok=True)
