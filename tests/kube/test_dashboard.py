"""`./disttrain dashboard` on a real cluster: one pod serves the page, and goes with the command."""

import http.client
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.dashboard.command import TASK
from cli.dashboard.server import PAGE_HEADER
from infra.kube import names
from tests.cli.fetch.local_pod import make_run
from tests.gate import Gate
from tests.kube.gate import through
from tests.kube.lab import Lab, Run, wait_for
from tests.kube.volume import cli, give_to_pods, no_pods, runs_folder


class Page:
    """A running `./disttrain dashboard`, and the requests that its page would send to it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout
        self.process = process
        line = process.stdout.readline().decode()
        assert "The runs are shown at http://127.0.0.1:" in line, line
        self.port = int(line.split(";")[0].rstrip("/").rpartition(":")[2])

    def ask(self, part: str, run: str = "") -> Any:
        """Return the JSON answer for a part of the page, such as `curves`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", f"/api/{part}?run={run}", headers={PAGE_HEADER: "1"})
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def runs(self) -> dict[str, Any]:
        """Return the runs of the overview, by their names."""
        return {run["name"]: run for run in self.ask("overview")["runs"]}


@contextmanager
def shown(lab: Lab, run: Run, tmp_path: Path, kubeconfig: Path | None = None) -> Iterator[Page]:
    """Yield the page of a new `./disttrain dashboard`. The command is killed afterwards."""
    with cli(lab, run, tmp_path, "dashboard", "--port", "0", kubeconfig=kubeconfig) as process:
        try:
            yield Page(process)
        finally:
            process.kill()


def pods_of(lab: Lab, run: Run) -> list[dict[str, Any]]:
    path = f"/api/v1/namespaces/{run.namespace}/pods"
    return lab.api.list(path, f"{names.TASK_LABEL}={TASK}")


@pytest.mark.slow
def test_one_pod_serves_all_looks_and_goes_with_the_command(
    lab: Lab, claim: Run, tmp_path: Path
) -> None:
    make_run(runs_folder(claim) / "first")
    give_to_pods(runs_folder(claim))
    with shown(lab, claim, tmp_path) as page:
        wait_for("the run of the volume", lambda: "first" in page.runs())
        run = page.runs()["first"]  # other tests have left records of other namespaces
        assert (run["state"], run["step"], run["of"]) == ("kept", 99, 300)
        curves = wait_for("its curve", lambda: page.ask("curves", run["id"])["content"])
        assert curves["loss"][-1][0] == 99
        problem = wait_for("no events", lambda: page.ask("goodput", run["id"])["problem"])
        assert "node-00000.jsonl does not exist on the volume" in problem
        assert page.ask("ranks", run["id"])["content"] == []
        sample = wait_for("a sample", lambda: page.ask("sample", run["id"])["content"])
        assert sample["text"].startswith("sample of sample --run-dir /data/runs/first")
        assert len(pods_of(lab, claim)) == 1
        page.process.send_signal(signal.SIGINT)
        assert page.process.wait(60) == 130
    wait_for("the pod to be gone", lambda: no_pods(lab, claim))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_while_the_pod_starts_leaves_none(
    lab: Lab, claim: Run, tmp_path: Path, number: signal.Signals
) -> None:
    with shown(lab, claim, tmp_path) as page:
        page.ask("overview")
        wait_for("the pod to be asked for", lambda: pods_of(lab, claim))
        page.process.send_signal(number)
        assert page.process.wait(60) == 128 + number
    wait_for("the pod to be gone", lambda: no_pods(lab, claim))


@pytest.mark.in_depth
def test_cluster_that_is_away_is_said_and_seen_again(
    lab: Lab, claim: Run, tmp_path: Path, gate: Gate
) -> None:
    """The page says when the cluster does not answer, keeps the runs that were seen, and goes on
    later.

    The pod is removed all the same when the command ends.
    """
    make_run(runs_folder(claim) / "first")
    give_to_pods(runs_folder(claim))
    kubeconfig = through(lab, gate, tmp_path)
    with shown(lab, claim, tmp_path, kubeconfig) as page:
        wait_for("the run of the volume", lambda: "first" in page.runs())
        gate.close()
        away = wait_for("that it is away", lambda: page.ask("overview")["cluster"]["problem"])
        assert away
        assert "first" in page.runs()
        gate.open()
        wait_for("that it is back", lambda: not page.ask("overview")["cluster"]["problem"])
        page.process.send_signal(signal.SIGTERM)
        assert page.process.wait(90) == 143
    wait_for("the pod to be gone", lambda: no_pods(lab, claim))
