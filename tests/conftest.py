"""Rules for the whole suite: a skipped test is a failure, and required folders must have run."""

import os
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

PROJECT = Path(__file__).parent.parent

# The text for the tests: the real one where it lies beside the checkout.
BESIDE = PROJECT.parent / "shared" / "data" / "tinyshakespeare.txt"
if BESIDE.is_file():
    os.environ.setdefault("DISTTRAIN_DATASET", str(BESIDE))

# The same examples in each run; `--hypothesis-profile=default` draws others.
hypothesis.settings.register_profile("suite", derandomize=True)
hypothesis.settings.load_profile("suite")

# Tests that share something: clusters, with what was on the machine before and after them; a host.
GROUPS = {
    "clusters": (
        "tests/cli/test_doctor_on_cluster.py",
        "tests/e2e/",
        "tests/sandbox/test_base_image.py",
        "tests/sandbox/test_cluster.py",
        "tests/sandbox/test_image_",
    ),
    "hosts": ("tests/node/",),
}

_passed_files: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        action="append",
        default=[],
        metavar="FOLDER",
        help="fail unless a test of this folder ran and passed; may be given more than once",
    )


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in its own hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `-n`, one worker takes all tests of a group; the rest goes a file at a time."""
    for item in items:
        file = item.path.relative_to(config.rootpath).as_posix()
        group = next((name for name, begins in GROUPS.items() if file.startswith(begins)), file)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and a skipped check is no check: {report.longrepr}"
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        _passed_files.add(report.location[0])


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.collectonly or hasattr(session.config, "workerinput"):
        return  # a worker sees a part; the process that started it sees all
    root = session.config.rootpath
    for folder in session.config.getoption("--require"):
        files = {str(path.relative_to(root)) for path in (root / folder).glob("**/test_*.py")}
        silent = files - _passed_files
        if silent or not files:
            print(f"\n--require {folder}: no test passed in {sorted(silent) or 'any file'}")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
