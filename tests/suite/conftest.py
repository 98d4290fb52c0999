import pytest


@pytest.fixture(autouse=True)
def no_options_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small suites that these tests run have no option of the run that they are a part of.

    Such as `--reversed`: some of them do not know it, and others count on the order of their files.
    """
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
