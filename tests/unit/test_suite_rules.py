"""The suite cannot pass by skipping: the rules of tests/conftest.py, tried on small suites."""

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parent.parent.parent


def run_suite(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    tests = folder / "tests"
    (tests / "e2e").mkdir(parents=True)
    (tests / "conftest.py").write_text((PROJECT / "tests" / "conftest.py").read_text())
    (tests / "e2e" / "test_one.py").write_text(test)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_passing_suite_passes(tmp_path: Path) -> None:
    done = run_suite(tmp_path, "def test_a(): pass\n", "--require", "tests/e2e")
    assert done.returncode == 0, done.stdout + done.stderr


def test_skipped_test_fails_the_suite(tmp_path: Path) -> None:
    done = run_suite(tmp_path, "import pytest\ndef test_a(): pytest.skip('no cluster')\n")
    assert done.returncode == 1
    assert "no cluster" in done.stdout


def test_required_folder_that_did_not_run_fails_the_suite(tmp_path: Path) -> None:
    done = run_suite(tmp_path, "def test_a(): pass\n", "--require", "tests/e2e", "-k", "nothing")
    assert done.returncode != 0
    assert "test_one.py" in done.stdout
