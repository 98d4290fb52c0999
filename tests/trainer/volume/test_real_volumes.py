"""Two nodes whose entrypoints start as pods start them, each with mounts of its own (needs Linux
and root).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.trainer.forked import without_torchruns_variables
from tests.trainer.lab import CHECKOUT, Lab, free_port, wait_for
from trainer.config import RunConfig
from trainer.launch.exit_codes import ExitCode
from trainer.volume.proof import FILE

LIMIT_SECONDS = 60

OWN_FOLDER = 'mkdir -p "$OWN" && mount --bind "$OWN" "$RUNS"'
READ_ONLY = 'mount --bind "$RUNS" "$RUNS" && mount -o remount,bind,ro "$RUNS"'


class Pods:
    """The pods of two nodes. On one of them the folder of all runs may be mounted differently."""

    def __init__(self, lab: Lab):
        self.lab, self.port = lab, free_port()
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, config: RunConfig, node: int, mount: str = "true") -> subprocess.Popen[bytes]:
        """Start an entrypoint after the shell command `mount`, whose mounts only this
        process sees.
        """
        runs = config.run_dir.parent
        runs.mkdir(exist_ok=True)
        settings = str(self.lab.config_file(config))
        program = [sys.executable, "-m", "trainer", "entrypoint", "--config", settings]
        with self.lab.node_log(node).open("a") as log:
            process = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh", *program],
                cwd=CHECKOUT,
                env={
                    **without_torchruns_variables(os.environ),
                    **self.lab._pod_environment(node, 2, 1, self.port),  # pyright: ignore
                    "RUNS": str(runs),
                    "OWN": str(self.lab.root / f"own-{node}"),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait(LIMIT_SECONDS)


@pytest.fixture
def pods(lab: Lab) -> Iterator[Pods]:
    """Yield the pods of two nodes, and end them afterwards."""
    pods = Pods(lab)
    yield pods
    pods.end()


@pytest.mark.parametrize(
    ("mount", "reason"),
    [
        (OWN_FOLDER, "the nodes do not share one volume: what node(s)"),
        (READ_ONLY, "node 1: the volume cannot be used here"),
    ],
)
def test_bad_volume_of_one_node_ends_all(pods: Pods, mount: str, reason: str) -> None:
    """When one node has another or a read-only volume, no rank is started, both pods end as fatal,
    and node 0 says the reason, too.
    """
    lab = pods.lab
    config = lab.config(train__volume_timeout_seconds=1, train__spare_processes=False)
    nodes = [pods.start(config, 0), pods.start(config, 1, mount)]
    codes = [node.wait(LIMIT_SECONDS) for node in nodes]
    assert codes == [ExitCode.FATAL, ExitCode.FATAL], lab.logs()
    last = lab.node_log(0).read_text().splitlines()[-1]
    assert last.startswith("[node 0] fatal: ")
    assert reason in last
    assert "round 1:" not in lab.logs()
    assert not list(lab.root.rglob(".volume-proof-*"))


def test_killed_start_leaves_nothing_behind(lab: Lab) -> None:
    """A pod that is killed while it waits for the others leaves its file, and the run that follows
    removes that file.
    """
    config = lab.config(train__max_steps=8)
    port = free_port()
    waiting = lab.start_entrypoint(config, 1, 2, 1, port)
    left = lambda: list(config.run_dir.glob(".volume-proof-*"))  # noqa: E731
    wait_for("the file of node 1", lambda: bool(left()), LIMIT_SECONDS, lab)
    waiting.kill()
    waiting.wait(LIMIT_SECONDS)
    assert len(left()) == 1
    nodes = [lab.start_entrypoint(config, node, 2, 1, port) for node in (0, 1)]
    wait_for("the end", (config.run_dir / "done.json").exists, LIMIT_SECONDS, lab)
    holding = lambda: lab.logs().count("holding until SIGTERM") == 2  # noqa: E731
    wait_for("both to hold", holding, LIMIT_SECONDS, lab)
    assert not left()
    kept = json.loads((config.run_dir / FILE).read_text())
    assert [each["node"] for each in kept["nodes"]] == [0, 1]
    assert "volume: 2 nodes see each other's new files" in lab.node_log(0).read_text()
    for node in nodes:
        node.terminate()
        assert node.wait(LIMIT_SECONDS) == ExitCode.DONE
