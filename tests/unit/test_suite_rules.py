"""The suite cannot pass by skipping: the rules of tests/conftest.py, tried on small suites."""

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent.parent


def run_suite(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    tests = folder / "tests"
    (tests / "e2e").mkdir(parents=True, exist_ok=True)
    (tests / "conftest.py").write_text((PROJECT / "tests" / "conftest.py").read_text())
    (tests / "e2e" / "test_one.py").write_text(test)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


WORKERS = pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadgroup")])


@WORKERS
def test_passing_suite_passes(tmp_path: Path, workers: tuple[str, ...]) -> None:
    done = run_suite(tmp_path, "def test_a(): pass\n", "--require", "tests/e2e", *workers)
    assert done.returncode == 0, done.stdout + done.stderr


@WORKERS
def test_skipped_test_fails_the_suite(tmp_path: Path, workers: tuple[str, ...]) -> None:
    test = "import pytest\ndef test_a(): pytest.skip('no cluster')\n"
    done = run_suite(tmp_path, test, *workers)
    assert done.returncode == 1
    assert "no cluster" in done.stdout


@WORKERS
def test_required_folder_that_did_not_run_fails_the_suite(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    not_it = ("--require", "tests/e2e", "-k", "nothing")
    done = run_suite(tmp_path, "def test_a(): pass\n", *not_it, *workers)
    assert done.returncode != 0
    assert "test_one.py" in done.stdout


def test_tests_that_change_the_machine_stay_on_one_worker(tmp_path: Path) -> None:
    """Two files of tests/e2e: the second sees what the first left in its process."""
    first = "import os\ndef test_a(): os.environ['SEEN'] = 'yes'\n"
    second = "import os\ndef test_b(): assert os.environ['SEEN'] == 'yes'\n"
    (tmp_path / "tests" / "e2e").mkdir(parents=True)
    (tmp_path / "tests" / "e2e" / "test_two.py").write_text(second)
    done = run_suite(tmp_path, first, "-n", "2", "--dist", "loadgroup")
    assert done.returncode == 0, done.stdout + done.stderr
