"""What ends one rank of a real run for good, as it does in practice."""

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

WITHOUT_A_WORD = 7  # exit status


def wrong_batch() -> None:
    """The last batch has an answer less than questions."""
    functional.cross_entropy(torch.zeros(64, 3), torch.zeros(63, dtype=torch.long))


def unknown_token() -> None:
    """A token of another vocabulary."""
    functional.embedding(torch.tensor([9]), torch.zeros(3, 2))


def wrong_shapes() -> None:
    """A layer that does not fit the one before it."""
    torch.zeros(2, 3).matmul(torch.zeros(2, 3))


def no_memory() -> None:
    """More than any machine has."""
    torch.empty(1 << 60, dtype=torch.uint8)


def file_became_shorter() -> None:
    """Data that is mapped, of a file that somebody replaces on a file server."""
    with tempfile.TemporaryFile() as file:
        file.write(b"\0" * 2 * mmap.PAGESIZE)
        file.flush()
        content = mmap.mmap(file.fileno(), 0)
        file.truncate(1)
        print(content[mmap.PAGESIZE])


def no_word() -> NoReturn:
    """A library that ends the process by itself."""
    os._exit(WITHOUT_A_WORD)


def abort() -> NoReturn:
    """A check of a library in C."""
    os.abort()


def missing_module() -> None:
    """An import that is reached late."""
    importlib.import_module("flash_attention_of_another_image")


def too_many_files() -> None:
    """A file that is opened and never closed, in each step."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
    kept = [Path(os.devnull).open("rb") for _ in range(100)]  # noqa: SIM115
    print(len(kept))


def endless_recursion() -> None:
    """A hook that calls what it belongs to."""
    endless_recursion()


def exit_of_python() -> NoReturn:
    """`sys.exit` somewhere deep in a library."""
    sys.exit("the licence server does not answer")


WORKS: dict[str, Callable[[], object]] = {
    work.__name__.replace("_", "-"): work
    for work in (
        *(wrong_batch, unknown_token, wrong_shapes, no_memory, file_became_shorter, no_word),
        *(abort, missing_module, too_many_files, endless_recursion, exit_of_python),
    )
}


def prepare_fatal(kind: str, happens: Callable[[], bool]) -> None:
    """Change the program of this process so that the forward pass does this, once it happens."""
    from trainer.parallel.wrap import Parallel

    loss, work = Parallel.loss, WORKS[kind]

    def ended(*values: Any, **more: Any) -> Any:
        if happens():
            work()
        return loss(*values, **more)

    Parallel.loss = ended
