"""Gives a failed test of real programs a second try, and reports it as unstable if that passes.

The suite starts clusters, SSH servers and hundreds of trainings. Whether a commit passes must not
depend on one rare accident among thousands of tests, but every such accident must be reported. So
with `--second-try` a failed test runs once more. The first failure is printed in full at the end,
as a fault to be mended. More than `MOST_UNSTABLE` such tests fail the run, and no further test gets
a second try then: if a cluster does not start, each try of a hundred tests would wait for it for
minutes. Tests of pure functions always give the same result, so they get no second try.

A test that fails again is shown with both failures. The tests of one file can build on each other,
so the second failure may come from what the first one left, and would not show the cause.
"""

import pytest

PURE = ("tests/unit/",)
MOST_UNSTABLE = 2
TITLE = "unstable tests: each failed once and passed when it was run again"
FAILED_TWICE = "first failures of the tests that failed again when they were run again"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--second-try",
        action="store_true",
        help=f"run a failed test once more; more than {MOST_UNSTABLE} that pass then fail the run",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--second-try"):
        return
    for item in items:
        if not item.path.relative_to(config.rootpath).as_posix().startswith(PURE):
            item.add_marker(pytest.mark.flaky(reruns=1))


class Unstable:
    """Collects the first failures of the tests that had a second try."""

    def __init__(self) -> None:
        self.first: dict[str, pytest.TestReport] = {}  # for tests that have not failed again
        self.failed_twice: dict[str, pytest.TestReport] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if str(report.outcome) == "rerun":
            self.first[report.nodeid] = report
        elif report.failed and report.nodeid in self.first:
            self.failed_twice[report.nodeid] = self.first.pop(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if len(self.first) > MOST_UNSTABLE:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for title, reports in ((FAILED_TWICE, self.failed_twice), (TITLE, self.first)):
            if reports:
                terminalreporter.section(title, yellow=True)
            for name, report in reports.items():
                terminalreporter.section(name, sep="_", yellow=True)
                terminalreporter.write_line(report.longreprtext)
        if not self.first:
            return
        number = len(self.first)
        verdict = "the run fails" if number > MOST_UNSTABLE else "the run does not fail"
        terminalreporter.write_line(
            f"{number} unstable: {verdict} (limit {MOST_UNSTABLE}). Look for the cause of each."
        )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--second-try"):
        config.option.max_suite_reruns = MOST_UNSTABLE + 1  # for all workers together
    if not hasattr(config, "workerinput"):  # a worker of xdist sends its reports to its parent
        config.pluginmanager.register(Unstable(), "unstable-tests")
