"""Real trainer processes that start in milliseconds: forked from one that has imported torch.

They have their own pid, signals, standard streams and exit code, so they can be killed like any
other. `python -m tests.trainer.forked` is the process that they are forked from.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]


class Nursery:
    """Starts trainer commands by fork, and waits for them."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.trainer.forked"],
            cwd=CHECKOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
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
    ) -> int:
        """Start `python -m trainer <arguments>`; returns its pid.

        `slow_disk_seconds`: how much longer each fsync of a checkpoint's file takes.
        """
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "log": str(log),
            "slow_disk_seconds": slow_disk_seconds,
        }
        return self._ask(request)

    def wait(self, pid: int, seconds: float) -> int | None:
        """The exit code, negative for a signal; None if it is still running after `seconds`."""
        return self._ask({"wait": pid, "seconds": seconds})

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=20)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def _serve() -> None:
    # Everything that a rank imports sooner or later; none of it starts a thread.
    import torch._dynamo
    import torch.utils.tensorboard  # noqa: F401

    import trainer.__main__
    import trainer.sharding
    import trainer.worker  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = _wait(request["wait"], time.monotonic() + request["seconds"])
        else:
            answer = os.fork()
            if answer == 0:
                _become(request)
        print(json.dumps(answer), flush=True)


def _wait(pid: int, deadline: float) -> int | None:
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            return None
        time.sleep(0.002)


def _become(request: Mapping[str, Any]) -> None:
    """Be the trainer process that the request asks for; never returns."""
    os.setsid()
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
        os.dup2(source, target)
    os.environ.update(request["environment"])
    from trainer import checkpoint
    from trainer.__main__ import main

    if seconds := request["slow_disk_seconds"]:
        original = checkpoint.fsync_file

        def slow_fsync(path: Path) -> None:
            time.sleep(seconds)
            original(path)

        checkpoint.fsync_file = slow_fsync
    code = 1
    try:
        code = main(request["arguments"])
    finally:
        os._exit(code)


if __name__ == "__main__":
    _serve()
