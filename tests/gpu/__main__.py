"""Checks what only a GPU can show of the trainer: `python3 -m tests.gpu`, or `make test-gpu`.

It uses the torch of this Python, and needs neither pytest nor a network nor an installation. Each
check runs in a process of its own, because contexts and compiled code stay with a process.

The exit status is 0 if every check passed, 1 if one failed, and 77 if nothing was run because there
is no GPU (with 77, automake's test drivers report a skipped test). A check that needs what this
machine lacks, such as a second GPU, is listed as not run, and does not fail the rest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
PASSED, FAILED, NOT_RUN = 0, 1, 77
LONGEST_CHECK_SECONDS = 180


def why_not_here() -> str | None:
    """Return why the checks on a GPU cannot run on this machine; None if they can."""
    try:
        import torch
    except ImportError as error:
        return f"the torch of {sys.executable} cannot be imported ({error})"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no GPU on this machine"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.gpu", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="checks to run; all without one")
    parser.add_argument("--here", metavar="FOLDER", help="run the one check in this process")
    options = parser.parse_args(arguments)
    if (reason := why_not_here()) is not None:
        print(f"tests/gpu was not run: {reason}.")
        return NOT_RUN
    checks = all_checks()
    if unknown := [name for name in options.names if name not in checks]:
        parser.error(f"unknown check {', '.join(unknown)}; there are {', '.join(checks)}")
    names = options.names or list(checks)
    if options.here:
        return _run_here(checks[names[0]], Path(options.here))
    return _run_all(names)


def all_checks() -> dict[str, Callable[..., str]]:
    """Return every check by its name. This imports torch."""
    from tests.gpu import arithmetic, compiled, launched, ranks, saving

    parts = (arithmetic, compiled, saving, ranks, launched)
    checks = tuple(check for part in parts for check in part.CHECKS)
    return {check.__name__: check for check in checks}


def _run_here(check: Callable[..., str], folder: Path) -> int:
    from tests.gpu.place import NotHereError, Place

    try:
        print(check(Place("cuda", folder)))
    except NotHereError as reason:
        print(reason)
        return NOT_RUN
    return PASSED


def _run_all(names: Sequence[str]) -> int:
    from tests.gpu.machine import describe_machine

    print(describe_machine(), flush=True)
    begin, results = time.monotonic(), list[int]()
    words = {PASSED: "passed", NOT_RUN: "NOT RUN"}
    for name in names:
        started = time.monotonic()
        code, output = _run_in_own_process(name)
        results.append(code)
        *log, last = output.strip().splitlines() or ["no output"]
        seconds = time.monotonic() - started
        print(f"{words.get(code, 'FAILED'):8}{seconds:6.1f} s  {name}: {last}", flush=True)
        if code not in words:
            print("\n".join(f"    {line}" for line in log[-60:]), flush=True)
    passed, not_run = results.count(PASSED), results.count(NOT_RUN)
    failed = len(results) - passed - not_run
    print(
        f"{passed} passed, {failed} failed, {not_run} not run, in {time.monotonic() - begin:.0f} s"
    )
    if failed:
        return FAILED
    return PASSED if passed else NOT_RUN


def _run_in_own_process(name: str) -> tuple[int, str]:
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu", name, "--here", folder],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            output, _ = process.communicate(timeout=LONGEST_CHECK_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            return FAILED, f"{output}\nended after {LONGEST_CHECK_SECONDS} s"
        return process.returncode, output


if __name__ == "__main__":
    sys.exit(main())
