"""The launcher in a Python without any of our packages, as in an image of the user's own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.program.desk import Desk
from trainer.launch.exit_codes import ExitCode
from trainer.program.carry import START_FILE, carry

LIMIT_SECONDS = 120
# Without `site` Python finds only the standard library, so the launcher has only what it carries.
BARE_PYTHON = [sys.executable, "-S"]


@pytest.fixture
def start_file(tmp_path: Path) -> Path:
    """Return the file that starts the carried launcher."""
    folder = tmp_path / "carried"
    carry(folder)
    return folder / START_FILE


def use_carried(desk: Desk, start_file: Path) -> None:
    """Let the desk use the carried launcher, away from the checkout, where Python would find our
    packages.
    """
    desk.trainer, desk.folder = [*BARE_PYTHON, str(start_file)], start_file.parents[1]


def test_carried_launcher_runs_a_program_to_its_end(desk: Desk, start_file: Path) -> None:
    """The carried launcher runs a program to its end, and prints the run's goodput, for which it
    starts a process of its own.
    """
    use_carried(desk, start_file)
    assert desk.run(desk.config("sh", "-c", "echo made step 1")) == ExitCode.DONE
    assert "run mine is finished" in desk.log()
    assert "] goodput " in desk.log()


def test_program_sees_none_of_the_carried_packages(desk: Desk, start_file: Path) -> None:
    """A program does not see the launcher's packages, because it may have a package `trainer`, or
    another version of PyYAML, of its own.
    """
    use_carried(desk, start_file)
    find = "from importlib.util import find_spec; print('sees', find_spec('trainer'))"
    assert desk.run(desk.python(find)) == ExitCode.DONE
    assert "sees None" in desk.log()


def test_nothing_compiled_is_carried(start_file: Path) -> None:
    """No compiled file is carried, because it would be for another Python."""
    suffixes = {path.suffix for path in start_file.parent.rglob("*.*")}
    assert ".py" in suffixes
    assert not suffixes & {".so", ".pyc"}


def test_python_that_is_too_old_is_named(start_file: Path) -> None:
    """A Python that is too old for the launcher is named with its version."""
    older = f"import sys; sys.version_info = (3, 10, 1); exec(open({str(start_file)!r}).read())"
    done = subprocess.run(
        [*BARE_PYTHON, "-c", older], capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert done.returncode == ExitCode.FATAL
    assert "python3 of program.image is Python 3.10, and the launcher needs 3.11" in done.stderr


def test_image_without_the_program_of_the_probe_is_named(start_file: Path, tmp_path: Path) -> None:
    """An image without `test` is named at the start. Kubernetes asks by it whether the ranks train,
    so the pods would never become ready, and nothing would say why.
    """
    (tmp_path / "bin").mkdir()
    done = subprocess.run(
        [*BARE_PYTHON, str(start_file), "--help"],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env={"PATH": str(tmp_path / "bin")},
    )
    assert done.returncode == ExitCode.FATAL
    assert done.stderr == (
        "fatal: program.image has no program `test` on its PATH, by which Kubernetes sees that the "
        "ranks train. Use an image with coreutils or busybox.\n"
    )
