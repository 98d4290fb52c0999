"""Keeps a copy of the data set's tokenizer.json in the folder of a run.

With this copy, samples and the export of the model need only the run's folder. It may be copied to
a machine that does not have the data set.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.checkpoint.durable import sha256_of, write_bytes
from trainer.data.json_tokenizer import JsonTokenizer
from trainer.data.tokenizer import Tokenizer, tokenizer_from_json
from trainer.run_folder import TOKENIZER_FILE


def keep_tokenizer(run_dir: Path, tokenizer: Tokenizer) -> None:
    """Copy the file of `tokenizer` into the run's folder atomically, unless the same one is there.

    Nothing is done for a tokenizer without a file. Only the process that writes the run's folder
    may call this.

    Raises:
        OSError: The file cannot be read, or the copy cannot be written.
    """
    if not isinstance(tokenizer, JsonTokenizer):
        return
    copy = run_dir / TOKENIZER_FILE
    if not copy.exists() or sha256_of(copy) != tokenizer.sha256:
        write_bytes(copy, tokenizer.file.read_bytes())


def tokenizer_of_run(run_dir: Path, saved: Mapping[str, Any]) -> Tokenizer:
    """Make the tokenizer of a run, from the run's copy of its file or else from the data set's.

    Args:
        run_dir: The folder of the run.
        saved: The result of `Tokenizer.to_json` in a checkpoint of the run.

    Raises:
        FatalError: The file cannot be read, or is not the file of the training.
    """
    has_copy = (run_dir / TOKENIZER_FILE).exists()
    return tokenizer_from_json(saved, run_dir if has_copy else None)
