"""Rules for the whole suite, such as that a skipped test is a failure.

The option --require fails a run if no test of a folder has passed.
"""

import asyncio
import itertools
import os
import secrets
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from tests.in_depth import DEPTH, FILES, LEFT_OUT, left_out

PROJECT = Path(__file__).parent.parent

pytest_plugins = ["tests.second_try"]
collect_ignore = left_out(DEPTH)

# The tests use the real Shakespeare text if it lies beside the checkout.
BESIDE = PROJECT.parent / "shared" / "data" / "tinyshakespeare.txt"
if BESIDE.is_file():
    os.environ.setdefault("DISTTRAIN_DATASET", str(BESIDE))

# Property tests draw other examples in each run, and a failure names the seed that draws the same
# examples again. `.ci/run` sets one seed for all its runs, because whether a commit passes must
# depend only on the commit. Failing examples are not kept in a database, because a run would then
# depend on earlier runs. The time of an example has no limit, because it depends on the machine.
SEED_VARIABLE = "DISTTRAIN_TEST_SEED"
os.environ.setdefault(SEED_VARIABLE, str(secrets.randbelow(2**32)))  # xdist's workers inherit it
hypothesis.settings.register_profile(
    "suite",
    database=None,
    deadline=None,
    derandomize=False,  # with the variable CI, hypothesis would default to True
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")

# Each group has the tests that one worker runs, because they share a cluster or a host that takes
# long to make. All other tests are given to workers file by file. The longest groups come first, so
# that no worker begins with one of them when the others have ended. The clusters and hosts of two
# workers have names, addresses and stores of their own. They are fixtures of their folder (scope
# `package`), so they end when the worker goes on to another folder: an idle control plane takes a
# tenth of a core. Only packages have such fixtures, so each of these folders has an `__init__.py`.
GROUPS = {
    "hosts, stories": ("tests/node/test_nodes", "tests/node/test_platform", "tests/node/test_s"),
    "hosts": ("tests/node/",),
    "e2e topologies": ("tests/e2e/test_topologies.py",),
    "e2e over SSH": ("tests/e2e/test_over_ssh.py", "tests/e2e/test_two_stacks_over_ssh.py"),
    "e2e GPUs": ("tests/e2e/test_gpu_operator.py",),
    "e2e engines": ("tests/e2e/test_engines.py", "tests/e2e/test_queue.py"),
    "e2e": ("tests/e2e/",),
    "kube": ("tests/kube/",),
}
LONG = ("tests/trainer/", "tests/sandbox/", "tests/cli/")  # these come next, in this order

_passed_files: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        action="append",
        default=[],
        metavar="FOLDER",
        help="fail unless a test of this folder ran and passed; may be given more than once",
    )
    parser.addoption(
        "--reversed",
        action="store_true",
        help="the last file and its last test first: no test may count on what one before it has "
        "left; only in files with the mark `in_order` the first test is the first one still",
    )


@pytest.hookimpl(tryfirst=True)  # before the plugin of hypothesis reads the option
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = os.environ[SEED_VARIABLE]
    # If a test makes a Pulumi output outside of a program, Python makes an event loop for the main
    # thread. Nothing closes that loop, and a later test would fail because of it. With the next
    # line the test that makes the output fails itself.
    asyncio.set_event_loop(None)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if terminalreporter.stats.get("failed"):
        seed = config.option.hypothesis_seed
        terminalreporter.write_line(f"property tests drew by this seed: {SEED_VARIABLE}={seed}")


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in its own hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Group the tests: with `-n`, one worker runs all tests of a group, or of a single file."""
    leave_to_longer_runs(config, items)
    order = [*GROUPS, *LONG]

    def place(item: pytest.Item) -> int:
        file = item.path.relative_to(config.rootpath).as_posix()
        group = next((name for name, begins in GROUPS.items() if file.startswith(begins)), file)
        item.add_marker(pytest.mark.xdist_group(group))
        return next((i for i, name in enumerate(order) if group.startswith(name)), len(order))

    items.sort(key=place)
    if config.getoption("--reversed"):
        items[:] = reversed_but_for_stories(items)


def leave_to_longer_runs(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of longer runs.

    In those runs, all tests of a file in `FILES` have the mark under which the file is named.
    """
    marks = {PROJECT / "tests" / name: mark for mark, names in FILES.items() for name in names}
    for item in items:
        if item.path in marks:
            item.add_marker(marks[item.path])
    later = [item for item in items if any(map(item.get_closest_marker, LEFT_OUT[DEPTH]))]
    later += [item for item in without_their_engine(items) if item not in later]
    config.hook.pytest_deselected(items=later)
    items[:] = [item for item in items if item not in later]


def without_their_engine(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that need a policy pack in Pulumi's engine, if this engine cannot
    run packs.
    """
    found = [item for item in items if item.get_closest_marker("policy_packs")]
    if found:
        from sandbox.pulumi_home import runs_policy_packs  # this may have to install the engine

        if runs_policy_packs():
            return []
    return found


def reversed_but_for_stories(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in reversed order, but each file with the mark `in_order` in its own
    order.
    """
    turned = list[pytest.Item]()
    for _, found in itertools.groupby(reversed(items), lambda item: item.path):
        file = list(found)
        turned += reversed(file) if file[0].get_closest_marker("in_order") else file
    return turned


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
        return  # a worker knows only its own tests; its parent process knows all
    root = session.config.rootpath
    for folder in session.config.getoption("--require"):
        files = {str(path.relative_to(root)) for path in (root / folder).glob("**/test_*.py")}
        silent = files - _passed_files - {f"tests/{name}" for name in collect_ignore}
        if silent or not files:
            print(f"\n--require {folder}: no test passed in {sorted(silent) or 'any file'}")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
