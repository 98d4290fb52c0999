import pytest

from tests.trainer.launch.gang import Clock
from trainer.launch import membership


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of the nodes that join."""
    clock = Clock()
    monkeypatch.setattr(membership, "time", clock)
    return clock
