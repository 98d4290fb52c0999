from collections.abc import Iterator

import pytest

from sandbox.cache import locked
from tests.node.lab import Lab


@pytest.fixture(scope="session")
def whole_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with locked("node-lab"):
        lab = Lab(tmp_path_factory.mktemp("node"))
        try:
            yield lab
        finally:
            lab.close()


@pytest.fixture
def lab(whole_lab: Lab) -> Iterator[Lab]:
    """The host as it was at first, before and after each test."""
    yield whole_lab
    whole_lab.clean()
    assert whole_lab.differences() == [], "a test left the host changed"
