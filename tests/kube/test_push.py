"""`disttrain push` on a real cluster: a run is on the volume whole, or not under its name."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.fetch.local_pod import contents, make_run
from tests.gate import Gate
from tests.kube.gate import through
from tests.kube.lab import Lab, Run, wait_for
from tests.kube.volume import UID, bytes_below, cli, no_pods, runs_folder

LIMIT_SECONDS = 300


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Wait for the end of a command, and return its exit status and output."""
    output = process.communicate(timeout=LIMIT_SECONDS)[0].decode()
    return process.returncode, output


def test_pushed_run_can_be_fetched_again(lab: Lab, claim: Run, tmp_path: Path) -> None:
    """A pushed run can be fetched unchanged, and a push under the name of an existing run is
    refused.
    """
    run = make_run(tmp_path / "demo", model_bytes=3_000_000)
    status, output = ended(cli(lab, claim, tmp_path, "push", str(run), "--run", "again"))
    assert status == 0, output
    assert "run again is on the volume: 8 files" in output
    there = runs_folder(claim) / "again"
    assert contents(there) == contents(run)
    assert there.stat().st_uid == UID
    status, output = ended(cli(lab, claim, tmp_path, "push", str(run), "--run", "again"))
    assert status == 2
    assert "the volume has a run of this name" in output
    here = tmp_path / "here"
    status, output = ended(cli(lab, claim, tmp_path, "fetch", "again", "--to", str(here)))
    assert status == 0, output
    assert contents(here) == contents(run)
    wait_for("the pods to be gone", lambda: no_pods(lab, claim))


@pytest.mark.in_depth
def test_push_that_was_ended_goes_on_and_has_no_name_before(
    lab: Lab, claim: Run, gate: Gate, tmp_path: Path
) -> None:
    """A push that somebody ended leaves no run of its name; the same push goes on from what
    arrived.

    A changed run is not sent on top of the files that have arrived.
    """
    run = make_run(tmp_path / "demo", model_bytes=20_000_000)
    kubeconfig = through(lab, gate, tmp_path)
    gate.delay_seconds = 0.02  # after each block: there is time to end it in the middle
    process = cli(lab, claim, tmp_path, "push", str(run), kubeconfig=kubeconfig)
    there = runs_folder(claim)
    wait_for("some bytes", lambda: bytes_below(there) > 5_000_000 or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    (incoming,) = runs_folder(claim).iterdir()
    assert incoming.name.startswith(".push-")
    wait_for("the pod to be gone", lambda: no_pods(lab, claim))
    (run / "run.yaml").write_text("another: run\n")
    status, output = ended(cli(lab, claim, tmp_path, "push", str(run)))
    assert status == 2
    assert f"./disttrain runs delete {incoming.name}" in output
    make_yaml_again(run)
    gate.delay_seconds = 0.0
    gate.cut_after_bytes = 10_000_000
    status, output = ended(cli(lab, claim, tmp_path, "push", str(run), kubeconfig=kubeconfig))
    assert status == 0, output
    assert "it continues with what has arrived" in output
    assert [path.name for path in runs_folder(claim).iterdir()] == ["demo"]
    assert contents(runs_folder(claim) / "demo") == contents(run)


def make_yaml_again(run: Path) -> None:
    """Write the `run.yaml` that the run had before."""
    (run / "run.yaml").write_text("run_name: demo\ntrain:\n  max_steps: 300\n")
