"""Starts real trainer processes in milliseconds, by forks of a process that has imported torch.

They have their own PID, signals, standard streams and exit code, so they can be killed like any
other process. An entrypoint that is started in this way forks its ranks instead of executing Python
again. `python -m tests.trainer.forked` is the process from which all are forked.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tests.trainer.accidents import Accident, prepare

CHECKOUT = Path(__file__).resolve().parents[2]


class Nursery:
    """Starts trainer commands by forks, and waits for their ends."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.trainer.forked"],
            cwd=CHECKOUT,
            env={**without_torchruns_variables(os.environ), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        slow_disk_seconds: float = 0.0,
        stop_in_evaluation: int = 0,
        slow_read_seconds: float = 0.0,
        accidents: Sequence[Accident] = (),
    ) -> int:
        """Start `python -m trainer <arguments>` in a forked process, and return its PID.

        Args:
            arguments: the arguments of the trainer.
            environment: variables that are added to the environment.
            log: the file for what it prints.
            slow_disk_seconds: how much longer each fsync of a checkpoint's file or folder takes.
            stop_in_evaluation: which evaluation, counted from 1, a SIGTERM interrupts; 0: none.
            slow_read_seconds: how much longer the verification of each checkpoint's file takes.
            accidents: accidents that the test may let happen on one of the ranks.
        """
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "log": str(log),
            "slow_disk_seconds": slow_disk_seconds,
            "stop_in_evaluation": stop_in_evaluation,
            "slow_read_seconds": slow_read_seconds,
            "accidents": [vars(accident) for accident in accidents],
        }
        return self._ask(request)

    def wait(self, pid: int, seconds: float) -> int | None:
        """Return the exit code, negative for a signal; None if the process still runs after
        `seconds`.
        """
        return self._ask({"wait": pid, "seconds": seconds})

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)  # it may still be importing torch
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


class Forked:
    """A process that a Nursery has started, with methods like those of subprocess.Popen."""

    def __init__(self, nursery: Nursery, pid: int):
        self._nursery, self.pid = nursery, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._nursery.wait(self.pid, 0)
        return self.returncode

    def wait(self, timeout: float) -> int:
        if self.returncode is None:
            self.returncode = self._nursery.wait(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return self.returncode

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


class ForkingPopen(subprocess.Popen[Any]):
    """A Popen that forks this process instead of executing `python -m trainer`."""

    def _execute_child(self, *values: Any) -> None:
        execute: Any = super()._execute_child  # pyright: ignore
        given = inspect.signature(execute).bind(*values).arguments
        python, *arguments = given["args"]
        module, *arguments = arguments[arguments.index("-m") + 1 :] if "-m" in arguments else [""]
        if python != sys.executable or module not in _MODULES:
            execute(*values)
            return
        assert given["start_new_session"]
        streams = (given["p2cread"], given["c2pwrite"], given["errwrite"])
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            for target, source in enumerate(streams):
                if source != -1:
                    os.dup2(source, target)
            _run(module, arguments, given["env"])
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        close: Any = self._close_pipe_fds  # pyright: ignore
        close(*(given[name] for name in pipes))


_MODULES = {"trainer": "trainer.__main__"}


def without_torchruns_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return these variables without those that torchrun reads."""
    return {name: value for name, value in environment.items() if not name.startswith("PET_")}


def _serve() -> None:
    # These are all modules that a rank imports sooner or later. None of them starts a thread.
    import torch._dynamo
    import torch.distributed.checkpoint
    import torch.utils.tensorboard  # noqa: F401

    import trainer.__main__
    import trainer.launch.entrypoint
    import trainer.launch.worker
    import trainer.parallel.sharding  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = _wait(request["wait"], time.monotonic() + request["seconds"])
        else:
            answer = os.fork()
            if answer == 0:
                _become(request)
        print(json.dumps(answer), flush=True)
    os._exit(0)  # a normal end of an interpreter with all of torch would take long


def _wait(pid: int, deadline: float) -> int | None:
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.002)


def _become(request: Mapping[str, Any]) -> NoReturn:
    """Become the trainer process that the request asks for."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
        os.dup2(source, target)
    subprocess.Popen = ForkingPopen
    if request["slow_disk_seconds"]:
        _slow_down_the_disk(request["slow_disk_seconds"])
    if request["slow_read_seconds"]:
        _slow_down_verification(request["slow_read_seconds"])
    for accident in request["accidents"]:
        prepare(Accident(**accident))
    if request["stop_in_evaluation"]:
        _stop_in_evaluation(request["stop_in_evaluation"])
    _run("trainer", request["arguments"], {**os.environ, **request["environment"]})


def _run(module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Run `python -m module` in this forked process, as if Python had been executed anew."""
    os.setsid()
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The old stream objects cannot be used, because another thread may have held their locks.
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering=1, closefd=False)  # noqa: SIM115
        for number, mode in enumerate("rww")
    )
    os.environ.clear()
    os.environ.update(environment)
    code = 1
    try:
        code = sys.modules[_MODULES[module]].main(list(arguments)) or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _slow_down_the_disk(seconds: float) -> None:
    from trainer.checkpoint import part_files, store

    fsync = part_files.fsync_file

    def slow_fsync(path: Path) -> None:
        time.sleep(seconds)
        fsync(path)

    part_files.fsync_file = slow_fsync
    fsync_directory = store.fsync_directory

    def slow_fsync_directory(path: Path) -> None:
        time.sleep(seconds)
        fsync_directory(path)

    store.fsync_directory = slow_fsync_directory


def _slow_down_verification(seconds: float) -> None:
    from trainer.checkpoint import store

    sha256_of = store.sha256_of

    def slow_sha256_of(path: Path) -> str:
        time.sleep(seconds)
        return sha256_of(path)

    store.sha256_of = slow_sha256_of


def _stop_in_evaluation(number: int) -> None:
    """Let this process get SIGTERM after the first batch of its `number`th evaluation."""
    from trainer import train

    evaluate, evaluations = train.evaluate, 0

    def evaluate_with_signal(*values: Any, should_stop: Callable[[], bool], **more: Any) -> Any:
        nonlocal evaluations
        evaluations += 1
        batches = 0

        def stop_or_not() -> bool:
            nonlocal batches
            batches += 1
            if evaluations == number and batches == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            return should_stop()

        return evaluate(*values, should_stop=stop_or_not, **more)

    train.evaluate = evaluate_with_signal


if __name__ == "__main__":
    _serve()
