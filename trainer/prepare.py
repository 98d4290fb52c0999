"""Text -> dataset directory: download (or read), check, split, tokenise, put into place.

The directory appears under its name only when it is complete. Splits are nanoGPT's: the first
nine tenths of the characters are training text, the rest is validation text.
"""

from __future__ import annotations

import hashlib
import http.client
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from trainer.config import DatasetConfig, RunConfig
from trainer.dataset import META_FILE, TOKEN_DTYPE, read_meta
from trainer.durable import fsync_directory, fsync_file, sha256_of, write_json
from trainer.exit_codes import FatalError, RetryableError
from trainer.tokenizer import CharTokenizer, Gpt2Tokenizer

ATTEMPTS = 5
_SOCKET_TIMEOUT_SECONDS = 30
_TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}


def prepare(config: RunConfig, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Make the dataset of `config`, unless the same one is there already.

    Raises:
        FatalError: missing address or file (404 and other final answers), wrong size or checksum,
            no UTF-8, empty split, disk full.
        RetryableError: the server could not be reached or broke off, ATTEMPTS times.
    """
    directory, dataset = config.dataset_dir, config.dataset
    if _is_prepared(directory, dataset):
        print(f"dataset {dataset.name} is already in {directory}", flush=True)
        return
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _directory_to_be(directory) as building:
            content = _fetch(dataset, sleep)
            _check_content(content, dataset)
            _build(content, dataset, building)
    except OSError as error:
        raise FatalError(f"dataset {dataset.name}: cannot write {directory}: {error}") from error


def _is_prepared(directory: Path, dataset: DatasetConfig) -> bool:
    """Whether `directory` holds this source in these tokens, undamaged."""
    meta = read_meta(directory)
    if meta is None or meta["tokenizer"]["kind"] != dataset.tokenizer:
        return False
    if dataset.sha256 is not None:
        same_source = meta["source"]["sha256"] == dataset.sha256
    else:  # a file may have changed since; an address is taken at its word
        same_source = dataset.file is None and meta["source"]["url"] == _origin(dataset)[0]
    paths = {split: directory / f"{split}.bin" for split in ("train", "val")}
    return same_source and all(
        path.exists() and sha256_of(path) == meta["splits"][split]["sha256"]
        for split, path in paths.items()
    )


def _origin(dataset: DatasetConfig) -> tuple[str | None, str | None]:
    """Address and file of the source, as kept in the metadata; one of them is None."""
    return (None, dataset.file) if dataset.file else (_without_password(dataset.url or ""), None)


@contextmanager
def _directory_to_be(directory: Path) -> Iterator[Path]:
    """A temporary directory that takes the name `directory` if the block succeeds."""
    building = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        yield building
        building.chmod(0o755)  # mkdtemp made it private
        for path in building.iterdir():
            fsync_file(path)
        fsync_directory(building)
        if directory.exists():
            replaced = building.with_name(f"{building.name}-replaced")
            directory.rename(replaced)
            building.rename(directory)
            shutil.rmtree(replaced)
        else:
            building.rename(directory)
        fsync_directory(directory.parent)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _fetch(dataset: DatasetConfig, sleep: Callable[[float], None]) -> bytes:
    """The text from its file, else from its address, trying again with growing pauses."""
    if dataset.file is not None:
        try:
            return Path(dataset.file).read_bytes()
        except OSError as error:
            raise FatalError(f"dataset.file: {dataset.file!r} cannot be read: {error}") from error
    assert dataset.url is not None
    address = _without_password(dataset.url)
    for attempt in range(1, ATTEMPTS + 1):
        print(f"downloading {address} (attempt {attempt} of {ATTEMPTS})", flush=True)
        try:
            return _download(dataset.url, address)
        except RetryableError as error:
            if attempt == ATTEMPTS:
                raise RetryableError(f"{error} ({ATTEMPTS} attempts)") from error
            print(f"{error}; trying again in {2 ** (attempt - 1)} s", flush=True)
            sleep(2 ** (attempt - 1))
    raise AssertionError("unreachable")


def _download(url: str, address: str) -> bytes:
    """One attempt. urllib honours HTTP_PROXY, HTTPS_PROXY and NO_PROXY."""
    request = urllib.request.Request(url, headers={"User-Agent": "disttrain"})
    try:
        opener = urllib.request.build_opener()
        with opener.open(request, timeout=_SOCKET_TIMEOUT_SECONDS) as response:
            if response.status != http.client.OK:
                raise FatalError(f"dataset.url: {address} answered {response.status}, not 200")
            return response.read()
    except urllib.error.HTTPError as error:
        kind = RetryableError if error.code in _TRANSIENT_STATUS else FatalError
        raise kind(
            f"dataset.url: {address} answered {error.code} {error.reason}, not 200"
        ) from error
    except http.client.IncompleteRead as error:
        got, missing = len(error.partial), error.expected or 0
        raise RetryableError(
            f"dataset.url: {address} broke off after {got} of {got + missing} bytes"
        ) from error
    except urllib.error.URLError as error:
        raise RetryableError(f"dataset.url: {address} not reached: {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise RetryableError(f"dataset.url: {address} failed: {error!r}") from error


def _without_password(url: str) -> str:
    """The address without user and password, for messages and metadata."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _check_content(content: bytes, dataset: DatasetConfig) -> None:
    actual = hashlib.sha256(content).hexdigest()
    if dataset.size_bytes is not None and len(content) != dataset.size_bytes:
        raise FatalError(
            f"dataset.size_bytes: {dataset.size_bytes} was asked for, the text has "
            f"{len(content)} bytes (truncated or another file?)"
        )
    if dataset.sha256 is None:
        print(f"dataset.sha256 is not set; this text has {actual}", flush=True)
    elif actual != dataset.sha256:
        raise FatalError(
            f"dataset.sha256: wrong checksum: {dataset.sha256} was asked for, "
            f"the text ({len(content)} bytes) has {actual}"
        )


def _build(content: bytes, dataset: DatasetConfig, directory: Path) -> None:
    """Tokenise into `directory`."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FatalError(f"dataset {dataset.name}: the text is not UTF-8: {error}") from error
    cut = int(len(text) * 0.9)
    tokenizer = CharTokenizer.of_text(text) if dataset.tokenizer == "char" else Gpt2Tokenizer()
    splits: dict[str, dict[str, object]] = {}
    for split, part in {"train": text[:cut], "val": text[cut:]}.items():
        tokens = tokenizer.encode(part)
        if len(tokens) < 2:
            raise FatalError(f"dataset {dataset.name}: too short: {split} has {len(tokens)} tokens")
        path = directory / f"{split}.bin"
        tokens.astype(TOKEN_DTYPE).tofile(path)
        splits[split] = {
            "tokens": len(tokens),
            "bytes": len(part.encode("utf-8")),
            "sha256": sha256_of(path),
        }
    url, file = _origin(dataset)
    source = {"url": url, "file": file, "sha256": hashlib.sha256(content).hexdigest()}
    meta = {
        "name": dataset.name,
        "source": source,
        "dtype": TOKEN_DTYPE.str,
        "tokenizer": tokenizer.to_json(),
        "vocab_size": tokenizer.vocab_size,
        "splits": splits,
    }
    write_json(directory / META_FILE, meta)
    print(
        f"dataset {dataset.name}: vocabulary {tokenizer.vocab_size}, "
        f"train {splits['train']['tokens']:,} tokens, val {splits['val']['tokens']:,} tokens",
        flush=True,
    )
