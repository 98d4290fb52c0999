"""The stacks of the project as their files say: each is deployed once for all of these tests."""

import functools
import tempfile
from pathlib import Path

import pytest

from tests.unit.stacks import STACKS, Deployment, deploy


@functools.cache
def deployed(stack: str) -> Deployment:
    with tempfile.TemporaryDirectory() as scratch:
        return deploy(stack, Path(scratch))


@pytest.fixture(scope="module", params=STACKS)
def deployment(request: pytest.FixtureRequest) -> tuple[str, Deployment]:
    """A stack's name, and what the program registers for it; no test may change this."""
    return request.param, deployed(request.param)
