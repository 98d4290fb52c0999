"""The fixture `desk`: each test of programs gets its own `Desk`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.program.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.end_all()
