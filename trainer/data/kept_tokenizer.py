"""The copy of a data set's tokenizer.json in the folder of a run.

With it the run's folder is enough for samples and for the export of the model: it may be copied to
where the data set is not.
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
    """Copy the file of `tokenizer` into the run's folder, atomically, unless the same is there.

    Does nothing for tokenizers that have no file. Only for the process that writes the run.

    Raises:
        OSError: the file cannot be read, or the copy cannot be written.
    """
    if not isinstance(tokenizer, JsonTokenizer):
        return
    copy = run_dir / TOKENIZER_FILE
    if not copy.exists() or sha256_of(copy) != tokenizer.sha256:
        write_bytes(copy, tokenizer.file.read_bytes())


def tokenizer_of_run(run_dir: Path, saved: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a run, with the run's own copy of its file, or else that of the data set.

    Args:
        run_dir: the folder of the run.
        saved: what `Tokenizer.to_json` has described in a checkpoint of the run.

    Raises:
        FatalError: the file cannot be read, or is another one than at the training.
    """
    has_copy = (run_dir / TOKENIZER_FILE).exists()
    return tokenizer_from_json(saved, run_dir if has_copy else None)
