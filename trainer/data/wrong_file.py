"""Finds out whether a server has sent something else than the file that was asked for.

A proxy, a login or a full quota may answer with a page and the status 200. A file without a
checksum in the settings would then be kept, and be read again by each later start.
"""

from __future__ import annotations

import os
from pathlib import Path

from trainer.data.sources import Format
from trainer.launch.exit_codes import FatalError

_PARQUET = b"PAR1"  # the first and the last bytes of each parquet file
_BEGINS_OF_PAGES = (b"<!doctype html", b"<html")
_NAMES_OF_PAGES = (".html", ".htm", ".xhtml")
_SEEN_BYTES = 1024


def refuse_wrong_file(url: str, path: Path, kind: Format, sha256: str, setting: str) -> None:
    """Remove a downloaded file, and end the preparation, if it is a page or a part of a table.

    Args:
        url: The address that the file came from.
        path: The file.
        kind: The format that its content should have.
        sha256: Its checksum, with which the settings can say that it is right.
        setting: The name of the setting with the address, for messages.

    Raises:
        FatalError: The file is something else. The message names the setting and the address.
    """
    with path.open("rb") as file:
        begin = file.read(_SEEN_BYTES)
        file.seek(-min(len(_PARQUET), file.seek(0, os.SEEK_END)), os.SEEK_END)
        end = file.read()
    if begin.lstrip().lower().startswith(_BEGINS_OF_PAGES):
        if path.suffix.lower() in _NAMES_OF_PAGES:
            return
        problem = f"is no {kind} file but an HTML page, perhaps of a proxy or a login"
    elif kind == "parquet" and not (begin.startswith(_PARQUET) and end == _PARQUET):
        problem = f"is no whole parquet file: it does not begin and end with {_PARQUET.decode()}"
    else:
        return
    path.unlink()
    raise FatalError(
        f"{setting}: what came from {url} {problem}. It was removed, so the next start downloads "
        f"it again. If it is right, set {setting.removesuffix('url')}sha256 to {sha256}"
    )
