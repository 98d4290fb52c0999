"""Fixtures and hooks for all unit tests."""

import gc
from collections.abc import Iterator
from functools import cache
from unittest.mock import patch

import pytest

from infra.image.plan import plan_image


def pytest_collection_finish() -> None:
    """Let the garbage collector ignore the modules and the collected tests.

    They exist to the end, and each full collection would examine all of them, which would take a
    tenth of the time of these tests.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def checkout_is_read_once() -> Iterator[None]:
    """Make the plan of an image only once, and not in each test.

    To make it, all files of `trainer/` are read, packed and hashed. No unit test changes them.
    """
    once = cache(plan_image)
    with (
        patch("infra.settings.image.plan_image", once),
        patch("infra.platform.reference.plan_image", once),
    ):
        yield


@pytest.fixture(autouse=True)
def no_options_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove pytest's options from the environment, because some tests run pytest themselves."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
