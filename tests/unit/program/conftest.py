"""Deploys each of the project's stacks once for all of these tests, as its file sets it."""

import functools
import tempfile
from pathlib import Path

import pytest

from tests.unit.stacks import STACKS, Deployment, deploy


@functools.cache
def deployed(stack: str) -> Deployment:
    """Return what the stack registers with the settings of its file."""
    with tempfile.TemporaryDirectory() as scratch:
        return deploy(stack, Path(scratch))


@pytest.fixture(scope="module", params=STACKS)
def deployment(request: pytest.FixtureRequest) -> tuple[str, Deployment]:
    """A stack's name, and what the program registers for it. No test may change the latter."""
    return request.param, deployed(request.param)
