"""The second try of a failed test (tests/second_try.py), in runs of pytest over small suites."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.second_try import FAILED_TWICE, MOST_UNSTABLE, TITLE

CHECKOUT = Path(__file__).parent.parent.parent
ONCE = """
from pathlib import Path

def test_fails_once_number_{number}():
    seen = Path(__file__).with_suffix(".seen")
    first = not seen.exists()
    seen.touch()
    assert not first, "accident {number}"
"""


def run_suite(folder: Path, *options: str) -> tuple[int, str]:
    """Run pytest with the plugin on a folder; return its exit status and its output."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.second_try", *options, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def unstable_suite(folder: Path, number: int) -> None:
    """Write so many tests that each fail once and pass when they are run again."""
    for each in range(number):
        (folder / f"test_{each}.py").write_text(ONCE.format(number=each))


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_unstable_test_passes_and_is_shown(tmp_path: Path, workers: list[str]) -> None:
    """An unstable test does not fail the run, and is shown with its first failure, whether or not
    workers ran it.
    """
    unstable_suite(tmp_path, 1)
    code, output = run_suite(tmp_path, "--second-try", *workers)
    assert code == 0, output
    assert TITLE in output
    assert "AssertionError: accident 0" in output
    assert "1 unstable: the run does not fail" in output


def test_too_many_unstable_tests_fail(tmp_path: Path) -> None:
    """More than MOST_UNSTABLE unstable tests fail the run."""
    unstable_suite(tmp_path, MOST_UNSTABLE + 1)
    code, output = run_suite(tmp_path, "--second-try", "-n", "2")
    assert code == 1, output
    assert f"{MOST_UNSTABLE + 1} unstable: the run fails" in output


def test_lost_run_gives_no_second_tries(tmp_path: Path) -> None:
    """If all tests fail, only a few get a second try. Otherwise each test would wait for its
    cluster twice.

    Two workers may ask for the last second try at the same moment. The one that does not get it may
    have an error of the plugin in place of its failure.
    """
    for number in range(10):
        (tmp_path / f"test_{number}.py").write_text(f"def test_{number}():\n    assert 0\n")
    code, output = run_suite(tmp_path, "--second-try", "-n", "2")
    assert code == 1, output
    assert f" {MOST_UNSTABLE + 1} rerun" in output
    assert " passed" not in output


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_failing_twice_shows_both_failures(tmp_path: Path, workers: list[str]) -> None:
    """A test that fails twice fails the run, is shown with both failures, and is not called
    unstable.
    """
    (tmp_path / "test_bad.py").write_text(
        "from pathlib import Path\n"
        "def test_bad():\n"
        "    seen = Path(__file__).with_suffix('.seen')\n"
        "    failure = 'what the first has left' if seen.exists() else 'the cause'\n"
        "    seen.touch()\n"
        "    raise AssertionError(failure)\n"
    )
    code, output = run_suite(tmp_path, "--second-try", *workers)
    assert code == 1, output
    assert TITLE not in output
    assert "AssertionError: what the first has left" in output
    assert FAILED_TWICE in output
    assert "AssertionError: the cause" in output


@pytest.mark.parametrize(("below", "option"), [("tests/unit", "--second-try"), ("tests/e2e", "-q")])
def test_no_second_try_without_need(tmp_path: Path, below: str, option: str) -> None:
    """A test of pure functions gets no second try, and without `--second-try` no test does."""
    folder = tmp_path / below
    folder.mkdir(parents=True)
    unstable_suite(folder, 1)
    code, output = run_suite(tmp_path, option)
    assert code == 1, output
    assert "1 rerun" not in output
