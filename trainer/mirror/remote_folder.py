"""Accesses a folder in an object store, or anywhere else that the library fsspec reaches.

For `s3://` the library s3fs does the work. It reads credentials and endpoint from the environment,
by the names that every S3 client knows: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_ENDPOINT_URL, AWS_REGION.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
from __future__ import annotations

import copy
import errno
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from trainer.launch.exit_codes import FatalError

BLOCK_BYTES = 16 * 2**20  # the size of one read, and of one part of an upload
CALL_SECONDS = 120.0  # the longest that a listing, a small file or one block may take
_S3_OPTIONS = {
    # A store that does not answer is noticed within a minute. The caller's own loop tries again.
    "config_kwargs": {
        "connect_timeout": 10,
        "read_timeout": 30,
        "retries": {"mode": "standard", "max_attempts": 2},
    },
    "use_listings_cache": False,
    "default_fill_cache": False,
}


def _s3_options() -> dict[str, Any]:
    """Return the options of s3fs. Its library knows AWS_DEFAULT_REGION only, and not AWS_REGION."""
    region = os.environ.get("AWS_REGION")
    return {**_S3_OPTIONS, **({"client_kwargs": {"region_name": region}} if region else {})}


class StoreError(Exception):
    """The store has failed; a later try may succeed."""


class DamagedError(Exception):
    """A file in the store was changed, which S3's own checksum of it shows, or it is missing."""


class RemoteFolder:
    """A folder behind a URL. Names are relative to it, with `/` between their parts."""

    def __init__(self, url: str, bytes_per_second: int = 0) -> None:
        """Connect to the folder; `bytes_per_second` limits each copy, and 0 is no limit.

        Raises:
            FatalError: no installed library supports such a URL.
        """
        import fsspec

        self.url = url.rstrip("/")
        self._pace = bytes_per_second
        protocol = url.partition("://")[0]
        options = _s3_options() if protocol in ("s3", "s3a") else {}
        try:
            filesystem, root = fsspec.core.url_to_fs(self.url, skip_instance_cache=True, **options)
        except (ImportError, ValueError) as error:
            raise FatalError(
                f"checkpoint.mirror: {url!r} cannot be used: {error}. Use s3://bucket/prefix, or "
                "add the library that fsspec names for this kind of URL to the trainer image"
            ) from error
        self._filesystem, self._root = filesystem, str(root).rstrip("/")
        self._is_s3 = bool(options)

    def parent(self) -> RemoteFolder:
        """Return the parent folder, with the same connections."""
        return self._moved(self.url.rpartition("/")[0], self._root.rpartition("/")[0])

    def below(self, folder: str) -> RemoteFolder:
        """Return the folder `folder` in this one, with the same connections."""
        return self._moved(f"{self.url}/{folder}", f"{self._root}/{folder}")

    def names(self, folder: str = "") -> list[str]:
        """Return the sorted names of what is in a folder; empty if the folder does not exist."""
        with self._store(folder):
            self._filesystem.invalidate_cache()
            try:
                found = self._filesystem.ls(self._path(folder), detail=False, **self._limit)
            except FileNotFoundError:
                return []
        return sorted({str(path).rstrip("/").rsplit("/", 1)[-1] for path in found})

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the files of a folder with their sizes in bytes; empty if it does not exist."""
        with self._store(folder):
            self._filesystem.invalidate_cache()
            try:
                found = self._filesystem.ls(self._path(folder), detail=True, **self._limit)
            except FileNotFoundError:
                return {}
        files = [each for each in found if each["type"] == "file"]
        return {str(each["name"]).rsplit("/", 1)[-1]: int(each["size"]) for each in files}

    def check(self) -> None:
        """Check that the bucket exists, which a listing does not show (S3 only).

        Raises:
            StoreError: there is no such bucket, or the store failed.
        """
        if self._is_s3:
            with self._store(""):
                bucket = self._root.partition("/")[0]
                self._filesystem.call_s3("head_bucket", Bucket=bucket, **self._limit)

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; None if it does not exist.

        Raises:
            StoreError: the store failed.
            DamagedError: the store's own checksum of the file differs.
        """
        with self._store(name):
            try:
                return cast(bytes, self._filesystem.cat_file(self._path(name), **self._limit))
            except FileNotFoundError:
                return None

    def read_part(self, name: str, offset: int, count: int) -> bytes | None:
        """Return `count` bytes of a file from `offset` on, or fewer at the end of the file.

        The result is None if the file does not exist. `count` is at most BLOCK_BYTES.

        Raises:
            StoreError: the store failed.
        """
        assert 0 < count <= BLOCK_BYTES
        started = time.monotonic()
        with self._store(name):
            try:
                found = self._filesystem.cat_file(
                    self._path(name), start=offset, end=offset + count, **self._limit
                )
            except FileNotFoundError:
                return None
        self._wait(len(found), started)
        return cast(bytes, found)

    def write(self, name: str, content: bytes) -> None:
        """Write a small file in one piece."""
        with self._store(name):
            self._make_folder_of(name)
            self._filesystem.pipe_file(self._path(name), content)

    def copy_in(self, source: Path, name: str) -> str:
        """Copy a file of this machine into the folder; return the sha256 of what was sent.

        Raises:
            StoreError: the store failed.
            OSError: the file of this machine cannot be read.
        """
        digest = hashlib.sha256()
        with source.open("rb") as file:
            with self._store(name):
                self._make_folder_of(name)
                target = self._filesystem.open(self._path(name), "wb", block_size=BLOCK_BYTES)
            try:
                for block in self._blocks(file):
                    digest.update(block)
                    with self._store(name):
                        target.write(block)
                with self._store(name):
                    target.close()
            except BaseException:
                # `close` would put an incomplete file in place.
                with suppress(Exception):
                    target.discard()
                target.closed = True
                raise
        return digest.hexdigest()

    def copy_out(self, name: str, target: Path) -> str:
        """Copy a file of the folder to a new file of this machine; return its sha256.

        The new file is synced to the disk.

        Raises:
            StoreError: the store failed.
            DamagedError: the file is missing, or the store's own checksum of it differs.
            OSError: the file of this machine cannot be written.
        """
        digest = hashlib.sha256()
        with target.open("xb") as file:
            with self._open_to_copy(name) as source:
                while True:
                    started = time.monotonic()
                    with self._store(name):
                        block = source.read(BLOCK_BYTES)
                    if not block:
                        break
                    digest.update(block)
                    file.write(block)
                    self._wait(len(block), started)
            file.flush()
            os.fsync(file.fileno())
        return digest.hexdigest()

    def _open_to_copy(self, name: str) -> AbstractContextManager[Any]:
        try:
            with self._store(name):
                return self._filesystem.open(
                    self._path(name), "rb", block_size=BLOCK_BYTES, cache_type="readahead"
                )
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise DamagedError(f"{name} is missing in the store") from error
            raise

    def remove(self, name: str) -> None:
        """Remove a file; do nothing if it does not exist."""
        with self._store(name), suppress(FileNotFoundError):
            self._filesystem.rm_file(self._path(name))

    def remove_folder(self, name: str) -> None:
        """Remove a folder with all that is in it; do nothing if it does not exist."""
        with self._store(name), suppress(FileNotFoundError):
            self._filesystem.invalidate_cache()
            self._filesystem.rm(self._path(name), recursive=True)

    def abort_unfinished(self) -> int:
        """Abort the unfinished uploads below this folder, and return how many there were.

        A killed process leaves them. S3 keeps, and charges for, the parts of an upload that was
        neither finished nor aborted.
        """
        if not self._is_s3:
            return 0
        bucket, _, prefix = self._root.partition("/")
        with self._store(""):
            answer = self._filesystem.call_s3(
                "list_multipart_uploads", Bucket=bucket, Prefix=f"{prefix}/"
            )
            left = answer.get("Uploads") or []
            for upload in left:
                self._filesystem.call_s3(
                    "abort_multipart_upload",
                    Bucket=bucket,
                    Key=upload["Key"],
                    UploadId=upload["UploadId"],
                )
        return len(left)

    def _moved(self, url: str, root: str) -> RemoteFolder:
        moved = copy.copy(self)
        moved.url, moved._root = url, root
        return moved

    @property
    def _limit(self) -> dict[str, float]:
        """The time limit of one call; file systems of this machine have none."""
        return {"timeout": CALL_SECONDS} if self._filesystem.async_impl else {}

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _make_folder_of(self, name: str) -> None:
        """Make the folder of a file; not in S3, which would make a bucket instead."""
        if not self._is_s3:
            self._filesystem.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)

    def _blocks(self, file: Any) -> Iterator[bytes]:
        while True:
            started = time.monotonic()
            block = file.read(BLOCK_BYTES)
            if not block:
                return
            yield block
            self._wait(len(block), started)

    def _wait(self, size_bytes: int, started: float) -> None:
        """Wait until the block that was begun at `started` keeps the limit of bytes per second."""
        if self._pace:
            time.sleep(max(0.0, size_bytes / self._pace - (time.monotonic() - started)))

    @contextmanager
    def _store(self, name: str) -> Iterator[None]:
        """Turn any error into a DamagedError or a StoreError that names the file and the store.

        The libraries behind fsspec raise their own kinds of errors, which share no base class.
        """
        try:
            yield
        except Exception as error:
            if _is_checksum_error(error):
                raise DamagedError(f"{name} was changed in the store ({error})") from error
            where = f"{self.url}/{name}" if name else self.url
            text = str(error) or "no further words"
            raise StoreError(f"{where}: {type(error).__name__}: {text}") from error


def is_refusal(error: StoreError) -> bool:
    """Whether the store has answered that it does not allow the request, or cannot do it."""
    cause = error.__cause__
    return isinstance(cause, PermissionError) or (
        isinstance(cause, OSError) and cause.errno == errno.ENOSYS
    )


def _is_checksum_error(error: Exception) -> bool:
    try:
        from botocore.exceptions import FlexibleChecksumError
    except ImportError:
        return False
    return isinstance(error, FlexibleChecksumError)
