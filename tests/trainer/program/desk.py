"""The real entrypoint with users' programs, in real processes with signals, on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.trainer.forked import without_torchruns_variables
from tests.trainer.lab import CHECKOUT
from tests.trainer.process_tree import processes_below
from trainer.config import RunConfig

LIMIT_SECONDS = 120  # the longest wait, on a busy machine too


class Desk:
    """A data root, a folder for programs, and entrypoints that end with the test.

    `trainer` is the command that starts the trainer, in the folder `folder`. `revision` is the
    revision of the pods, for tests in which the entrypoints must look like pods.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.trainer, self.folder = [sys.executable, "-m", "trainer"], CHECKOUT
        self.revision = ""
        self._started = list[subprocess.Popen[str]]()

    def config(self, *command: str, **more: Any) -> RunConfig:
        """Return a run whose ranks run `command`.

        `more` has further settings of `program`, and `train` with settings of that section.
        """
        mapping = {
            "run_name": "mine",
            "data_root": str(self.root / "data"),
            "train": {"max_restarts": 3, **more.pop("train", {})},
            "program": {"command": list(command), **more},
        }
        return RunConfig.from_mapping(mapping)

    def python(self, text: str, **more: Any) -> RunConfig:
        """Return a run whose ranks run this Python text; `more` as in `config`."""
        path = self.root / "program.py"
        path.write_text(textwrap.dedent(text))
        return self.config(sys.executable, str(path), **more)

    def start(
        self, config: RunConfig, node: int = 0, nodes: int = 1, ranks: int = 1, port: int = 1
    ) -> subprocess.Popen[str]:
        """Start the entrypoint of one node."""
        path = self.root / f"run-{node}.yaml"
        path.write_text(yaml.safe_dump(config.to_mapping()))
        environment = {
            "PET_NNODES": str(nodes),
            "PET_NODE_RANK": str(node),
            "PET_NPROC_PER_NODE": str(ranks),
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": str(port),
            "DISTTRAIN_RUN_KEY": "key",
            "DISTTRAIN_REVISION": self.revision,
            "DISTTRAIN_READY_DIR": str(self.root / f"ready-{node}"),
        }
        clean = without_torchruns_variables(os.environ)
        clean.pop("PYTHONUNBUFFERED", None)  # the launcher sets it for programs
        with (self.root / f"node-{node}.log").open("a") as output:
            process = subprocess.Popen(
                [*self.trainer, "entrypoint", "--config", str(path)],
                cwd=self.folder,
                env={**clean, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self._started.append(process)
        return process

    def run(self, config: RunConfig, ranks: int = 1) -> int:
        """Run on one node to the end, and return the exit code."""
        return self.start(config, ranks=ranks).wait(LIMIT_SECONDS)

    def log(self, node: int = 0) -> str:
        """Return what the entrypoints of this node have printed."""
        path = self.root / f"node-{node}.log"
        return path.read_text() if path.exists() else ""

    def wait_for(self, what: str, node: int = 0, times: int = 1) -> None:
        """Wait until the pattern `what` is in the node's log `times` times."""

        def found() -> bool:
            return len(re.findall(what, self.log(node))) >= times

        self.wait(f"{what!r} of node {node}", found)

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, and fail with the logs after `LIMIT_SECONDS`."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"waited for {what}\n{self.log(0)}\n{self.log(1)}")
            time.sleep(0.05)

    def kill(self, pod: subprocess.Popen[str]) -> int:
        """Kill all processes of a pod, as the end of a container does, and return its exit code.

        If only the entrypoint were killed, a program that waits for ever would outlive it.
        """
        for pid in processes_below(pod.pid):
            with suppress(ProcessLookupError):  # it has ended with the previous one
                os.kill(pid, signal.SIGKILL)
        return pod.wait(LIMIT_SECONDS)

    def end_all(self) -> None:
        for process in self._started:
            if process.poll() is None:
                self.kill(process)
