"""Makes a data set from files: downloads them, tokenises them in parallel, and splits the tokens.

Documents are read in their order, tokenised by several processes and appended to one stream of
tokens in the same order. So neither the number of processes nor a kill changes the result. Memory
holds a few batches of 1 MB for each process, whatever the size of the data. The directory gets its
name only when it is complete.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trainer.checkpoint.durable import fsync_directory, fsync_file, sha256_of, write_json
from trainer.config import DatasetConfig, RunConfig, SourceUrl
from trainer.data.batches import FAILS_FOR_A_WHILE, Batch, Place, read_batches
from trainer.data.download import check_content, download, sha256_of_file
from trainer.data.encode import Encoded, Encoder, characters_of
from trainer.data.long_work import LongWork
from trainer.data.meta import META_FILE, read_meta
from trainer.data.pool import ordered_map
from trainer.data.request import addresses, is_prepared, request_of, what_differs
from trainer.data.sources import (
    Source,
    downloaded_sources,
    file_name_of,
    format_of,
    local_sources,
)
from trainer.data.split import Cut, find_cut, is_one_text, write_split
from trainer.data.stream import Progress, TokenStream, read_progress
from trainer.data.tokenizer import CharTokenizer, Tokenizer, token_dtype, tokenizer_from_json
from trainer.data.work_folder import (
    DOWNLOADS,
    RESULT,
    begin,
    put_in_place,
    remove_leftovers,
    work_folder,
)
from trainer.data.wrong_file import refuse_wrong_file
from trainer.launch.exit_codes import FatalError, RetryableError
from trainer.parallel.cores import available_cores
from trainer.run_folder import TOKENIZER_FILE

# Tokenising less text than this takes less time than the start of another process.
_BYTES_FOR_A_WORKER = 2**24


def prepare(
    config: RunConfig,
    *,
    workers: int | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Make the dataset of `config`, unless the same one is there already.

    After a kill, or a failure that may end by itself, the next start continues where this one
    stopped.

    Args:
        config: Only its `data_root` and `dataset` are used.
        workers: The number of processes that tokenise. None: one for each core, but fewer for small
            data.
        sleep: Waits for a number of seconds between two attempts to download.

    Raises:
        FatalError: An address or a file is missing (404 and other final answers), the size or
            checksum or content of a file is wrong, a split is empty, or the disk is full.
        RetryableError: The server could not be reached or broke off several times, a worker
            process was killed, or the storage fails.
    """
    directory, dataset = config.dataset_dir, config.dataset
    request = request_of(dataset)
    if is_prepared(directory, request):
        print(f"dataset {dataset.name} is already in {directory}", flush=True)
        remove_leftovers(directory)
        return
    meta = read_meta(directory)
    if meta is not None:
        reason = what_differs(meta.get("request", {}), request)
        print(f"dataset {dataset.name} in {directory} is made again: {reason}", flush=True)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with work_folder(directory) as folder:
            if is_prepared(directory, request):  # Another process made it in the meantime.
                return
            _refuse_to_replace_a_new_one(directory, dataset, meta, request)
            begin(folder, request)
            if not (folder / RESULT / META_FILE).exists():
                _make(folder, dataset, request, workers, sleep)
            put_in_place(folder, directory)
    except OSError as error:
        kind = RetryableError if error.errno in FAILS_FOR_A_WHILE else FatalError
        raise kind(f"dataset {dataset.name}: cannot write {directory}: {error}") from error


def _refuse_to_replace_a_new_one(
    directory: Path,
    dataset: DatasetConfig,
    before: dict[str, Any] | None,
    request: dict[str, Any],
) -> None:
    """Refuse to replace a data set that another process has made while this one waited for it.

    Two runs that begin at the same moment do not see each other before. If this one replaced the
    data set, the other run could not start again.

    Args:
        directory: the folder of the data set.
        dataset: the wanted data set.
        before: the metadata of the data set that was there before the wait; None: there was none.
        request: the wanted data set, as `request_of` describes it.
    """
    now = read_meta(directory)
    if now is None or now == before:
        return
    raise FatalError(
        f"dataset.name: {dataset.name!r} cannot be used: while this process waited, another one "
        f"has made a data set of this name in {directory} from other settings "
        f"({what_differs(now.get('request', {}), request)}). It stays, because the run that it was "
        "made for could not start again without it. Set another name (datasetName)"
    )


def _make(
    folder: Path,
    dataset: DatasetConfig,
    request: dict[str, Any],
    workers: int | None,
    sleep: Callable[[float], None],
) -> None:
    """Do all steps up to the complete data set in `<folder>/result`."""
    sources = _fetch(folder, dataset, sleep)
    size = sum(source.path.stat().st_size for source in sources)
    workers = workers or min(available_cores(), 1 + size // _BYTES_FOR_A_WORKER)
    tokenizer = _tokenizer(folder, dataset, sources, workers)
    progress = read_progress(folder)
    if not progress.is_complete:
        progress = _tokenise(folder, dataset, sources, tokenizer, workers, progress)
    cut = find_cut(folder, folder / RESULT, progress, dataset, sources, tokenizer)
    write_split(folder, folder / RESULT, cut, tokenizer)
    meta = {
        "name": dataset.name,
        "request": request,
        "files": [
            {"name": s.path.name, "size_bytes": s.path.stat().st_size, "sha256": s.sha256}
            for s in sources
        ],
        "documents": progress.entries,
    }
    _write_meta(folder / RESULT, meta, tokenizer, cut)


def _fetch(folder: Path, dataset: DatasetConfig, sleep: Callable[[float], None]) -> list[Source]:
    """Return the files of the data set on disk, downloaded if needed and checked."""
    wanted = addresses(dataset)
    if not wanted:
        sources = local_sources(dataset)
        if dataset.sha256 is not None or dataset.size_bytes is not None:
            path = sources[0].path
            expected = SourceUrl("", dataset.sha256, dataset.size_bytes)
            sha256 = sha256_of_file(path)
            check_content(expected, path.stat().st_size, sha256, "dataset.file")
            return [replace(sources[0], sha256=sha256)]
        return sources
    files: list[tuple[str, Path, str]] = []
    for source, setting in wanted:
        # A signed address changes while its file stays the same, so the checksum comes first.
        key = hashlib.sha256((source.sha256 or source.url).encode()).hexdigest()[:12]
        name = file_name_of(source.url)
        path = folder / DOWNLOADS / f"{key}-{name}"
        sha256 = download(source, path, setting, sleep)
        if source.sha256 is None:
            refuse_wrong_file(source.url, path, format_of(dataset, name), sha256, setting)
        files.append((source.url, path, sha256))
    return downloaded_sources(dataset, files)


def _tokenizer(
    folder: Path, dataset: DatasetConfig, sources: list[Source], workers: int
) -> Tokenizer:
    """Make the tokenizer of the settings. The tokenizer `char` needs a pass over all texts."""
    if dataset.tokenizer == "gpt2":
        tokenizer = tokenizer_from_json({"kind": "gpt2"})
        tokenizer.encode("")  # This loads the ranks, which each worker would download otherwise.
        return tokenizer
    if dataset.tokenizer != "char":
        from trainer.data.json_tokenizer import JsonTokenizer

        # The original is opened first, so that an error names it and not the copy.
        JsonTokenizer.open(Path(dataset.tokenizer), dataset.end_of_text)
        kept = folder / RESULT / TOKENIZER_FILE
        shutil.copyfile(dataset.tokenizer, kept)
        return JsonTokenizer.open(kept, dataset.end_of_text)
    if sources[0].format == "bin":
        raise FatalError(
            f"dataset.tokenizer: 'char' cannot be used for {sources[0].path}, which holds tokens "
            "and not text; set gpt2 or the path of the tokenizer.json that made them"
        )
    known = folder / "characters.txt"
    if not known.exists():
        seen = np.zeros(0x110000, np.bool_)
        batches, work, read = _batches(sources, Progress(), dataset), LongWork(), 0
        for batch, found in ordered_map(_make_survey, (dataset,), batches, workers):
            seen[found] = True
            read += batch.is_last
            if work.is_line_due():
                file = f"file {min(read + 1, len(sources))} of {len(sources)}"
                print(f"{file}: its characters are read", flush=True)
        points = np.flatnonzero(seen).astype("<u4")
        unfinished = known.with_suffix(".tmp")
        unfinished.write_bytes(points.tobytes())
        fsync_file(unfinished)
        unfinished.replace(known)
    return CharTokenizer(
        known.read_bytes().decode("utf-32-le"), has_end_of_text=not is_one_text(dataset, sources)
    )


def _tokenise(
    folder: Path,
    dataset: DatasetConfig,
    sources: list[Source],
    tokenizer: Tokenizer,
    workers: int,
    progress: Progress,
) -> Progress:
    """Append the missing tokens to the stream in `folder`, and return its progress then."""
    stream = TokenStream(folder, token_dtype(tokenizer.vocab_size).itemsize)
    arguments = (tokenizer.to_json(), dataset, not is_one_text(dataset, sources))
    batches = _batches(sources, progress, dataset)
    work = LongWork()
    try:
        for batch, encoded in ordered_map(_make_encoder, arguments, batches, workers):
            if batch.source.is_validation:
                stream.mark_validation()
            file = stream.progress.source + batch.is_last
            place = Place() if batch.is_last else batch.next
            stream.append(encoded, source=file, offset=place.offset, number=place.number)
            if work.is_line_due():
                print(
                    f"file {min(file + 1, len(sources))} of {len(sources)}: "
                    f"{stream.progress.tokens:,} tokens so far, by {workers} process(es)",
                    flush=True,
                )
        stream.complete()
    finally:
        stream.close()
    if stream.progress.skipped:
        print(f"{stream.progress.skipped:,} documents without text were left out", flush=True)
    return stream.progress


def _batches(sources: list[Source], progress: Progress, dataset: DatasetConfig) -> Iterator[Batch]:
    """Yield all batches that come after `progress`."""
    for number in range(progress.source, len(sources)):
        place = progress.place if number == progress.source else Place()
        yield from read_batches(
            sources[number], place, dataset.text_field, dataset.document_separator
        )


def _make_survey(dataset: DatasetConfig) -> Callable[[Batch], Any]:
    return lambda batch: characters_of(batch, dataset)


def _make_encoder(
    tokenizer: dict[str, Any], dataset: DatasetConfig, has_documents: bool
) -> Callable[[Batch], Encoded]:
    return Encoder(tokenizer_from_json(tokenizer), dataset, has_documents).encode


def _write_meta(result: Path, meta: dict[str, Any], tokenizer: Tokenizer, cut: Cut) -> None:
    """Add figures of the files to `meta`, and write it. This file completes the data set."""
    dtype = token_dtype(tokenizer.vocab_size)
    splits: dict[str, dict[str, Any]] = {}
    for split, size in (("train", cut.train_bytes), ("val", cut.val_bytes)):
        path = result / f"{split}.bin"
        tokens = path.stat().st_size // dtype.itemsize
        splits[split] = {"tokens": tokens, "bytes": size, "sha256": sha256_of(path)}
    fsync_directory(result)
    has_file = (result / TOKENIZER_FILE).exists()
    made = {
        "dtype": dtype.str,
        "tokenizer": tokenizer.to_json() | ({"file": TOKENIZER_FILE} if has_file else {}),
        "vocab_size": tokenizer.vocab_size,
        "splits": splits,
    }
    write_json(result / META_FILE, {**meta, **made})
    print(
        f"dataset {meta['name']}: vocabulary {tokenizer.vocab_size}, "
        f"train {splits['train']['tokens']:,} tokens, val {splits['val']['tokens']:,} tokens",
        flush=True,
    )
