"""Reads parquet, arrow and zstd files with pyarrow, which is imported only when it is needed."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from trainer.data.sources import Source
from trainer.launch.exit_codes import FatalError


def open_zstd(path: Path) -> IO[bytes]:
    """Open the decompressed content of a .zst file with any number of frames."""
    import pyarrow

    return pyarrow.input_stream(str(path), compression="zstd")


def table_texts(source: Source, skipped: int, column: str) -> Iterator[list[str | None]]:
    """Yield the values of a column, a few rows at a time, without the first `skipped` rows.

    Raises:
        FatalError: The file cannot be read, or `column` is missing or holds no text in UTF-8.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        if source.format == "parquet":
            # Without a buffer size, a whole column of a row group would be read at once.
            file = pyarrow.parquet.ParquetFile(source.path, buffer_size=2**20, pre_buffer=False)
            _check_column(source, file.schema_arrow, column)
            groups = list(range(file.num_row_groups))
            while groups and skipped >= file.metadata.row_group(groups[0]).num_rows:
                skipped -= file.metadata.row_group(groups.pop(0)).num_rows
            batches = file.iter_batches(
                batch_size=64, row_groups=groups, columns=[column], use_threads=False
            )
        else:
            batches = _arrow_batches(source, column)
        for batch in batches:
            values = batch.column(column)
            if skipped:
                values = values.slice(skipped)
                skipped -= batch.num_rows - len(values)
            for start in range(0, len(values), 64):
                rows = values.slice(start, 64).cast(pyarrow.large_binary()).to_pylist()
                yield [_decoded(source, row) for row in rows]
    except pyarrow.ArrowException as error:
        raise FatalError(
            f"{source.path}: is no {source.format} file that can be read: {error}"
        ) from error


def _decoded(source: Source, row: bytes | None) -> str | None:
    """Decode the bytes of a row, which nobody has checked before.

    A single half of a surrogate pair stays in the text.
    """
    if row is None:
        return None
    try:
        return row.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise FatalError(
            f"{source.path}: the row that begins with {row[:40]!r} is not UTF-8 text "
            f"({error.reason}); write the file again with text in UTF-8"
        ) from error


def _arrow_batches(source: Source, column: str) -> Iterator[Any]:
    """Yield the record batches of an Arrow file in stream format, as `datasets` writes it, or in
    file format."""
    import pyarrow

    with pyarrow.OSFile(str(source.path)) as file:
        is_stream = file.read(6) != b"ARROW1"
        file.seek(0)
        reader = pyarrow.ipc.open_stream(file) if is_stream else pyarrow.ipc.open_file(file)
        _check_column(source, reader.schema, column)
        if is_stream:
            yield from reader
        else:
            yield from map(reader.get_batch, range(reader.num_record_batches))


def _check_column(source: Source, schema: Any, column: str) -> None:
    import pyarrow

    if column not in schema.names:
        raise FatalError(
            f"dataset.text_field: {source.path} has no column {column!r}; it has "
            f"{', '.join(schema.names)}"
        )
    kind = schema.field(column).type
    if not pyarrow.types.is_string(kind) and not pyarrow.types.is_large_string(kind):
        raise FatalError(
            f"dataset.text_field: the column {column!r} of {source.path} holds {kind}, not text"
        )
