"""Rules for the whole suite: a skipped test is a failure, and required folders must have run."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent

# The text for the tests: the real one where it lies beside the checkout.
BESIDE = PROJECT.parent / "shared" / "data" / "tinyshakespeare.txt"
if BESIDE.is_file():
    os.environ.setdefault("DISTTRAIN_DATASET", str(BESIDE))

_passed_files: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        action="append",
        default=[],
        metavar="FOLDER",
        help="fail unless a test of this folder ran and passed; may be given more than once",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and a skipped check is no check: {report.longrepr}"
    if report.when == "call" and report.passed:
        _passed_files.add(report.location[0])
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        return
    root = session.config.rootpath
    for folder in session.config.getoption("--require"):
        files = {str(path.relative_to(root)) for path in (root / folder).glob("**/test_*.py")}
        silent = files - _passed_files
        if silent or not files:
            print(f"\n--require {folder}: no test passed in {sorted(silent) or 'any file'}")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
