"""The rules of tests/conftest.py, tried on small suites: for example, a skipped test fails
the run.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from infra.workloads import WORKLOADS
from tests.e2e.engines import ENGINES
from tests.in_depth import ALL, COMMIT, FILES, IN_DEPTH, QUICK, SLOW, VARIABLE

PROJECT = Path(__file__).parent.parent.parent


def run_suite(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a suite with one test file and the real conftest.py."""
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


# Workers run the tests in other processes than the one that reports. One worker is enough to test
# that, and starts sooner than two.
WORKER = ("-n", "1", "--dist", "loadgroup")
WORKERS = pytest.mark.parametrize("workers", [(), WORKER])


@WORKERS
def test_passing_suite_passes(tmp_path: Path, workers: tuple[str, ...]) -> None:
    """A suite whose tests pass, with a test in each required folder, passes."""
    done = run_suite(tmp_path, "def test_a(): pass\n", "--require", "tests/e2e", *workers)
    assert done.returncode == 0, done.stdout + done.stderr


@WORKERS
def test_skipped_test_fails_the_suite(tmp_path: Path, workers: tuple[str, ...]) -> None:
    """A skipped test fails the suite, and its reason is shown."""
    test = "import pytest\ndef test_a(): pytest.skip('no cluster')\n"
    done = run_suite(tmp_path, test, *workers)
    assert done.returncode == 1
    assert "no cluster" in done.stdout


@WORKERS
def test_required_folder_that_did_not_run_fails_the_suite(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    """A required folder in which no test ran fails the suite, and its files are named."""
    not_it = ("--require", "tests/e2e", "-k", "nothing")
    done = run_suite(tmp_path, "def test_a(): pass\n", *not_it, *workers)
    assert done.returncode != 0
    assert "test_one.py" in done.stdout


# Which of a test's three parameters, or of three files, runs at each depth.
DEPTHS = pytest.mark.parametrize(
    ("depth", "asked"),
    [
        (None, ["often"]),
        (QUICK, ["often"]),
        (COMMIT, ["often", "seldom"]),
        (ALL, ["often", "seldom", "rare"]),
    ],
)


def set_depth(monkeypatch: pytest.MonkeyPatch, depth: str | None) -> None:
    """Set the depth of the tests for the run, or none."""
    if depth is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, depth)


MARKED = """
import pytest
from tests.in_depth import in_depth, slow
@pytest.mark.parametrize("way", ["often", slow("seldom"), in_depth("rare")])
def test_a(way): open(way, "w").close()
"""


@DEPTHS
def test_marked_parameters_are_left_to_longer_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    depth: str | None,
    asked: list[str],
) -> None:
    """Parameters with the mark `slow` or `in_depth` run only in the depths that ask for them."""
    set_depth(monkeypatch, depth)
    done = run_suite(tmp_path, MARKED, *WORKER)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {*asked}


@DEPTHS
def test_files_are_required_in_their_depth(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    depth: str | None,
    asked: list[str],
) -> None:
    """`--require` asks only for files of the run's own depth, and fails if one of these did not
    pass.
    """
    files = {"seldom": FILES[SLOW][0], "rare": FILES[IN_DEPTH][0]}
    for file in files.values():
        (tmp_path / "tests" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / file).write_text("def test_b(): assert False\n")
    folders = sorted(
        {f"tests/{Path(file).parent}" for file in [*files.values(), "e2e/test_one.py"]}
    )
    required = [option for folder in folders for option in ("--require", folder)]
    (tmp_path / "tests" / "e2e").mkdir(parents=True, exist_ok=True)
    set_depth(monkeypatch, depth)
    done = run_suite(tmp_path, "def test_a(): pass\n", *required, *WORKER)
    seen = [name for name, file in files.items() if f"tests/{file}" in done.stdout]
    assert seen == asked[1:]
    assert (done.returncode == 0) == (not seen), done.stdout + done.stderr


def test_file_in_depth_is_asked_by_its_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-m in_depth`, as in `make test-engines`, also runs the files of that depth, whose tests have
    no mark of their own.
    """
    file = tmp_path / "tests" / FILES[IN_DEPTH][0]
    file.parent.mkdir(parents=True)
    file.write_text("def test_b(): pass\n")
    monkeypatch.setenv(VARIABLE, ALL)
    done = run_suite(tmp_path, MARKED, "-m", IN_DEPTH)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed, 2 deselected" in done.stdout


def test_unknown_depth_is_refused_with_the_depths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown depth is refused, and the known ones are named."""
    monkeypatch.setenv(VARIABLE, "deep")
    done = run_suite(tmp_path, "def test_a(): pass\n")
    assert done.returncode != 0
    assert f"{VARIABLE} is 'deep'" in done.stdout + done.stderr
    assert "quick, commit, all" in done.stdout + done.stderr


def test_each_depth_is_run_by_a_command() -> None:
    """Each depth is run by the Makefile or by `.ci/run`. Tests that one command leaves out and no
    other one runs would never run.
    """
    makefile = (PROJECT / "Makefile").read_text()
    assert f"{VARIABLE}={ALL} $(DEV) -m pytest tests -m {IN_DEPTH}\n" in makefile
    assert f"export {VARIABLE}={COMMIT}\n" in (PROJECT / ".ci" / "run").read_text()
    assert all((PROJECT / "tests" / file).exists() for files in FILES.values() for file in files)


@pytest.mark.parametrize(
    ("test", "kinds"),
    [
        ("test_each_rank_is_where_it_should_be", [*WORKLOADS]),
        # The weights are compared with those of `multi-pod`; tests/e2e/test_topologies.py compares
        # `indexed-job`.
        (
            "test_lost_pod_starts_the_ranks_again_and_the_weights_are_the_same",
            [engine.kind.name for engine in ENGINES],
        ),
    ],
)
def test_each_commit_asks_every_kind_for_ranks_and_weights(
    monkeypatch: pytest.MonkeyPatch, test: str, kinds: list[str]
) -> None:
    """Each commit tests every kind of workload for the place of its ranks and for equal weights. No
    kind is left to longer runs with these.
    """
    set_depth(monkeypatch, COMMIT)
    file = "tests/e2e/test_engines.py"
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", file, "-k", test],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.findall(rf"::{test}\[([a-z-]+?)(?:-\d-\d)?\]", listed.stdout)
    assert sorted(found) == sorted(kinds)


def test_tests_that_change_the_machine_stay_on_one_worker(tmp_path: Path) -> None:
    """All files of tests/e2e run on one worker: the second file sees what the first has left in the
    process.
    """
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
    """Return the numbers that a run of the suite has drawn."""
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
    """Property tests draw other examples in each run, unless the seed is given. Otherwise they
    would test the same few examples for ever.

    Hypothesis sets `derandomize` by itself where the variable CI is set, and so this test sets it.
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


def run_with_make(
    folder: Path, script: str, missing: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `.ci/run` with a stand-in for `make`, for which `missing` tools are not in the cache."""
    make = folder / "make"
    asked = f'[ "$1" = missing-tools ] && exec seq {missing}\n'
    make.write_text(f"#!/bin/sh\n{asked}{script}\n")
    make.chmod(0o755)
    return subprocess.run(
        ["bash", str(PROJECT / ".ci" / "run")],
        env={"PATH": f"{folder}:/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("mine", ["", "77"])
def test_continuous_integration_fixes_the_seed(tmp_path: Path, mine: str) -> None:
    """`.ci/run` uses a fixed seed, whatever the seed of its caller is."""
    show = 'echo "$1 with $DISTTRAIN_TEST_SEED"'
    done = run_with_make(tmp_path, show, DISTTRAIN_TEST_SEED=mine)
    assert (done.returncode, done.stdout) == (0, "test with 1\n")


@pytest.mark.parametrize(
    ("missing", "asked"),
    [
        (0, ["test at commit"]),
        (10, ["test at commit"]),
        (11, ["test at quick", "test-kinds at commit"]),
    ],
)
def test_run_that_builds_the_tools_asks_less(
    tmp_path: Path, missing: int, asked: list[str]
) -> None:
    """`.ci/run` tests less, and says so, if many tools must be built first. A few missing tools, as
    after a new version of one, change nothing.
    """
    done = run_with_make(tmp_path, f'echo "$1 at ${VARIABLE}"', missing)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == asked
    assert ("11 tools are not in the cache" in done.stderr) == (missing == 11)


@pytest.mark.parametrize("failing", ["test", "test-kinds"])
def test_either_part_of_such_a_run_can_fail_it(tmp_path: Path, failing: str) -> None:
    """If such a run has two parts, each of them can fail it."""
    done = run_with_make(tmp_path, f'[ "$1" != {failing} ]', 11)
    assert done.returncode == 1


def test_all_targets_of_the_run_are_there() -> None:
    """The Makefile has every target that `.ci/run` calls. The tests above replace `make`, and would
    not notice.
    """
    asked = re.findall(r"\bmake ([a-z-]+)", (PROJECT / ".ci" / "run").read_text())
    assert {"test", "test-kinds", "missing-tools"} <= set(asked)
    makefile = (PROJECT / "Makefile").read_text()
    assert [name for name in asked if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def test_hanging_run_is_interrupted_in_time(tmp_path: Path) -> None:
    """`.ci/run` interrupts a run that takes too long, so that pytest still prints its summary.
    Otherwise the run would be cut off from outside, and no line would say what has failed.
    """
    hangs = tmp_path / "hangs"
    # timeout signals its command, and then the command's group, so `make` gets the signal twice.
    trap = "trap 'trap : INT; kill $!; echo summary; exit 2' INT"
    hang = f"{trap}; sleep 600 >/dev/null 2>&1 & touch {hangs}; wait"
    limit_seconds = 1
    while True:
        done = run_with_make(tmp_path, hang, CI_LIMIT_SECONDS=str(limit_seconds))
        if hangs.exists():
            break
        limit_seconds *= 2  # on a busy machine, the run was interrupted before it had begun
    assert done.returncode == 124
    assert done.stdout == "summary\n"
    assert f"had not ended after {limit_seconds} s" in done.stderr
