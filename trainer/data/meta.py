"""Reads the metadata of a prepared data set. It needs nothing but the standard library.

trainer/data/dataset.py describes the directory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from trainer.launch.exit_codes import FatalError

META_FILE = "meta.json"


def read_meta(directory: Path) -> dict[str, Any] | None:
    """Read the metadata of the data set in `directory`, or return None if there is none.

    Raises:
        FatalError: The metadata are not JSON.
    """
    try:
        return cast(dict[str, Any], json.loads((directory / META_FILE).read_text()))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise FatalError(f"{directory / META_FILE} is not JSON: {error}") from error


def training_sha256(meta: Mapping[str, Any]) -> str:
    """Return the fingerprint of the training tokens: their sha256 as hexadecimal digits."""
    return str(meta["splits"]["train"]["sha256"])
