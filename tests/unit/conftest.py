"""What all unit tests share."""

import gc
from collections.abc import Iterator
from functools import cache
from unittest.mock import patch

import pytest

from infra.image.plan import plan_image


def pytest_collection_finish() -> None:
    """Let the garbage collector leave the modules and the collected tests alone.

    They live to the end, and each full collection would look through all of them: a tenth of the
    time of these tests.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def checkout_is_read_once() -> Iterator[None]:
    """The settings' plan of the image is made once for the same image, not in each test.

    It reads, packs and hashes all files of `trainer/`, which no unit test changes.
    """
    once = cache(plan_image)
    with (
        patch("infra.settings.image.plan_image", once),
        patch("infra.platform.reference.plan_image", once),
    ):
        yield


@pytest.fixture(autouse=True)
def no_options_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that start pytest on a small suite choose its options themselves."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
