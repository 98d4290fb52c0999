"""Fixtures of the tests of the test suite itself."""

import pytest


@pytest.fixture(autouse=True)
def no_options_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the small suites of these tests without the options of the whole run.

    Some of them do not know an option such as `--reversed`, and others depend on their order.
    """
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
