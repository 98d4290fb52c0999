"""The suite cannot pass by skipping: the rules of tests/conftest.py, tried on small suites."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.in_depth import FILES, MARK, VARIABLE

PROJECT = Path(__file__).parent.parent.parent


def run_suite(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    tests = folder / "tests"
    (tests / "e2e").mkdir(parents=True, exist_ok=True)
    for name in ("conftest.py", "in_depth.py", "second_try.py"):
        (tests / name).write_text((PROJECT / "tests" / name).read_text())
    (tests / "e2e" / "test_one.py").write_text(test)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


# A worker is another process than the one that sums up; one is as good as two, and sooner there.
WORKERS = pytest.mark.parametrize("workers", [(), ("-n", "1", "--dist", "loadgroup")])


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


@WORKERS
def test_required_folder_counts_no_file_in_depth(
    tmp_path: Path, workers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make test` leaves such files to `make test-engines`, where they have to pass."""
    (tmp_path / "tests" / "e2e").mkdir(parents=True)
    (tmp_path / "tests" / FILES[0]).write_text("def test_b(): assert False\n")
    required = ("def test_a(): pass\n", "--require", "tests/e2e", *workers)
    monkeypatch.delenv(VARIABLE, raising=False)
    done = run_suite(tmp_path, *required)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.setenv(VARIABLE, "1")
    done = run_suite(tmp_path, *required)
    assert done.returncode == 1
    assert f"no test passed in ['tests/{FILES[0]}']" in done.stdout


MARKED = """
import pytest
@pytest.mark.parametrize("way", ["often", pytest.param("rare", marks=pytest.mark.in_depth)])
def test_a(way): assert way == "often"
"""


@WORKERS
def test_marked_parameter_is_left_to_make_test_engines(
    tmp_path: Path, workers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the tests of files in depth are asked there by the mark, though they do not have it."""
    (tmp_path / "tests" / "e2e").mkdir(parents=True)
    (tmp_path / "tests" / FILES[0]).write_text("def test_b(): pass\n")
    monkeypatch.delenv(VARIABLE, raising=False)
    done = run_suite(tmp_path, MARKED, *workers)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    monkeypatch.setenv(VARIABLE, "1")
    done = run_suite(tmp_path, MARKED, "-m", MARK, *workers)
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout


def test_what_is_in_depth_is_asked_by_make() -> None:
    """What `make test` leaves out and `make test-engines` does not ask for would never run."""
    makefile = (PROJECT / "Makefile").read_text()
    assert f"{VARIABLE}=1 $(DEV) -m pytest tests -m {MARK}\n" in makefile
    assert all((PROJECT / "tests" / file).exists() for file in FILES)


def test_tests_that_change_the_machine_stay_on_one_worker(tmp_path: Path) -> None:
    """Two files of tests/e2e: the second sees what the first left in its process."""
    first = "import os\ndef test_a(): os.environ['SEEN'] = 'yes'\n"
    second = "import os\ndef test_b(): assert os.environ['SEEN'] == 'yes'\n"
    (tmp_path / "tests" / "e2e").mkdir(parents=True)
    (tmp_path / "tests" / "e2e" / "test_two.py").write_text(second)
    done = run_suite(tmp_path, first, "-n", "2", "--dist", "loadgroup")
    assert done.returncode == 0, done.stdout + done.stderr


# --- the examples of property tests ---

DRAWS = """
from hypothesis import given, strategies as st
@given(st.integers(0, 2**62))
def test_a(number):
    with open("drawn", "a") as file:
        print(number, file=file)
"""


def drawn(folder: Path, seed: str | None, monkeypatch: pytest.MonkeyPatch, *options: str) -> str:
    """The numbers that a run of the suite has drawn."""
    if seed is None:
        monkeypatch.delenv("DISTTRAIN_TEST_SEED", raising=False)
    else:
        monkeypatch.setenv("DISTTRAIN_TEST_SEED", seed)
    (folder / "drawn").unlink(missing_ok=True)
    done = run_suite(folder, DRAWS, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "drawn").read_text()


def test_examples_vary_unless_the_seed_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 5 of the review: with `derandomize` property tests were fixed examples.

    Hypothesis sets `derandomize` by itself where the variable CI is set.
    """
    monkeypatch.setenv("CI", "true")
    assert drawn(tmp_path, None, monkeypatch) != drawn(tmp_path, None, monkeypatch)
    one = drawn(tmp_path, "1", monkeypatch)
    assert one == drawn(tmp_path, "1", monkeypatch, "-n", "1")


def test_failure_names_the_seed_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTTRAIN_TEST_SEED", "4711")
    done = run_suite(tmp_path, "def test_a(): assert False\n", "-q")
    assert done.returncode == 1
    assert "DISTTRAIN_TEST_SEED=4711" in done.stdout


def test_continuous_integration_fixes_the_seed(tmp_path: Path) -> None:
    """`make` is replaced by a program that shows what it was called with."""
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\necho "$1 with $DISTTRAIN_TEST_SEED"\n')
    make.chmod(0o755)
    seen: set[str] = set()
    for mine in ("", "77"):
        done = subprocess.run(
            ["bash", str(PROJECT / ".ci" / "run")],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", "DISTTRAIN_TEST_SEED": mine},
            capture_output=True,
            text=True,
            check=True,
        )
        seen.add(done.stdout)
    assert seen == {"test with 1\n"}


def test_hanging_run_is_interrupted_in_time(tmp_path: Path) -> None:
    """A run of 90 minutes was cut off, and no line of it said what had failed."""
    make, hangs = tmp_path / "make", tmp_path / "hangs"
    hang = f"trap 'kill $!; echo summary; exit 2' INT; sleep 600 >/dev/null 2>&1 & touch {hangs}"
    make.write_text(f"#!/bin/sh\n{hang}; wait\n")
    make.chmod(0o755)
    limit_seconds = 1
    while True:
        done = subprocess.run(
            ["bash", str(PROJECT / ".ci" / "run")],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin", "CI_LIMIT_SECONDS": str(limit_seconds)},
            capture_output=True,
            text=True,
            check=False,
        )
        if hangs.exists():
            break
        limit_seconds *= 2  # it was interrupted before it had begun, on a busy machine
    assert done.returncode == 124
    assert done.stdout == "summary\n"
    assert f"had not ended after {limit_seconds} s" in done.stderr
