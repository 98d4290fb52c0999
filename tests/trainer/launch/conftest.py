"""The clock that tests of agreements between nodes turn forward."""

import pytest

from tests.trainer.launch.gang import Clock
from trainer.launch import membership


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the clock of the nodes that join by one that the test can turn forward."""
    clock = Clock()
    monkeypatch.setattr(membership, "time", clock)
    return clock
