"""Fatal accidents, which end one rank of a real run in ways that occur in practice."""

from __future__ import annotations

import importlib
import mmap
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.nn import functional

WITHOUT_A_WORD = 7  # the exit status of `no_word`


def wrong_batch() -> None:
    """Compute a loss with one target less than predictions."""
    functional.cross_entropy(torch.zeros(64, 3), torch.zeros(63, dtype=torch.long))


def unknown_token() -> None:
    """Look up a token that the vocabulary does not have."""
    functional.embedding(torch.tensor([9]), torch.zeros(3, 2))


def wrong_shapes() -> None:
    """Multiply matrices whose shapes do not fit."""
    torch.zeros(2, 3).matmul(torch.zeros(2, 3))


def no_memory() -> None:
    """Allocate more memory than any machine has."""
    torch.empty(1 << 60, dtype=torch.uint8)


def file_became_shorter() -> None:
    """Read a memory map of a file that was truncated, as when it is replaced on a file server."""
    with tempfile.TemporaryFile() as file:
        file.write(b"\0" * 2 * mmap.PAGESIZE)
        file.flush()
        content = mmap.mmap(file.fileno(), 0)
        file.truncate(1)
        print(content[mmap.PAGESIZE])


def no_word() -> NoReturn:
    """End the process without a message, as some libraries do."""
    os._exit(WITHOUT_A_WORD)


def abort() -> NoReturn:
    """Abort, as a failed check in a C library does."""
    os.abort()


def missing_module() -> None:
    """Import a missing module late in a run."""
    importlib.import_module("flash_attention_of_another_image")


def too_many_files() -> None:
    """Open more files than the process may have, as with a file that is never closed."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
    kept = [Path(os.devnull).open("rb") for _ in range(100)]  # noqa: SIM115
    print(len(kept))


def endless_recursion() -> None:
    """Recurse without end, as with a hook that calls its own function."""
    endless_recursion()


def exit_of_python() -> NoReturn:
    """Call `sys.exit`, as somewhere deep in a library."""
    sys.exit("the licence server does not answer")


WORKS: dict[str, Callable[[], object]] = {
    work.__name__.replace("_", "-"): work
    for work in (
        *(wrong_batch, unknown_token, wrong_shapes, no_memory, file_became_shorter, no_word),
        *(abort, missing_module, too_many_files, endless_recursion, exit_of_python),
    )
}


def prepare_fatal(kind: str, happens: Callable[[], bool]) -> None:
    """Change the trainer in this process, so that the forward pass has this accident.

    It happens as soon as `happens` returns true.
    """
    from trainer.parallel.wrap import Parallel

    loss, work = Parallel.loss, WORKS[kind]

    def ended(*values: Any, **more: Any) -> Any:
        if happens():
            work()
        return loss(*values, **more)

    Parallel.loss = ended
