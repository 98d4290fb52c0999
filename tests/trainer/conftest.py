"""Fixtures for tests that run the real trainer in small trainings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.trainer.forked import Nursery
from tests.trainer.lab import Lab, text_of_words

# The threads of small runs in this process would only wait for each other.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def words_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file with the text of all small trainings."""
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text(text_of_words())
    return path


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Yield the process that starts trainer processes by forks, for all tests of the session."""
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture
def lab(tmp_path: Path, words_file: Path, nursery: Nursery) -> Iterator[Lab]:
    """Yield a lab in the test's own folder, and end all its processes afterwards."""
    lab = Lab(tmp_path, words_file, nursery)
    yield lab
    lab.end_all()


@pytest.fixture(scope="module")
def module_lab(
    tmp_path_factory: pytest.TempPathFactory, words_file: Path, nursery: Nursery
) -> Iterator[Lab]:
    """Yield a lab that all tests of a module share, and end all its processes afterwards."""
    lab = Lab(tmp_path_factory.mktemp("lab"), words_file, nursery)
    yield lab
    lab.end_all()
