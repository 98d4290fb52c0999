"""Fixtures of the node tests; releases.py says whether k3s itself or its stand-in is installed."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.cache import locked
from tests.node.lab import Lab
from tests.node.lan import Lan
from tests.node.releases import session_source
from tests.node.rootfs import SYSTEM
from tests.node.standing import Platform, Standing

MARKER = "stand_in"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARKER}(what): holds with the stand-in of k3s alone, as it needs `what` of it"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that need the stand-in of k3s, if k3s itself is installed."""
    needing = [item for item in items if item.get_closest_marker(MARKER)]
    if needing and session_source().publisher:
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in needing]


def pytest_report_collectionfinish(items: list[pytest.Item]) -> list[str]:
    if any(item.path.is_relative_to(Path(__file__).parent) for item in items):
        return [f"tests/node installs {session_source()}, on {SYSTEM}"]
    return []


@pytest.fixture(scope="package")
def whole_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield the lab with its host. All tests of this process share it. It is closed at the end."""
    with locked(f"node-lab-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"):
        lab = Lab(tmp_path_factory.mktemp("node"))
        try:
            yield lab
        finally:
            lab.close()


@pytest.fixture(scope="package")
def standing(whole_lab: Lab) -> Standing:
    """Return the keeper of the platform that tests share."""
    return Standing(whole_lab)


@pytest.fixture
def lab(whole_lab: Lab, standing: Standing) -> Iterator[Lab]:
    """Yield the lab with its host in its first state. The test must leave it in that state."""
    standing.drop()
    yield whole_lab
    whole_lab.clean()
    assert whole_lab.differences() == [], "a test left the host changed"


@pytest.fixture
def platform(standing: Standing) -> Iterator[Platform]:
    """Yield a platform that is up on the host (standing.py)."""
    with standing.use() as made:
        yield made


@pytest.fixture(scope="module")
def whole_lan(whole_lab: Lab) -> Iterator[Lan]:
    """Yield the lab's host and two further hosts on one network, which a file's tests share."""
    lan = Lan(whole_lab)
    try:
        yield lan
    finally:
        lan.close()


@pytest.fixture
def lan(lab: Lab, whole_lan: Lan) -> Iterator[Lan]:
    """Yield two further hosts beside the lab's. All have their first state, before and after the
    test.
    """
    assert whole_lan.lab is lab
    yield whole_lan
    whole_lan.clean()
    for name, machine in whole_lan.machines.items():
        left = machine.differences()
        assert left == [], f"a test left {name} changed: {left}"
