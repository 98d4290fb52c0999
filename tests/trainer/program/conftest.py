"""The fixture `desk`, which gives each test of programs its own `Desk`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.program.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Yield a `Desk`, and end all processes that it has started afterwards."""
    made = Desk(tmp_path)
    yield made
    made.end_all()
