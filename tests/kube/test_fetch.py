"""`disttrain fetch` on a real cluster: real exec streams, real pods, a real volume."""

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.fetch.local_pod import add_checkpoint, contents, make_run
from tests.gate import Gate
from tests.in_depth import in_depth
from tests.kube.gate import through
from tests.kube.lab import Lab, Run, wait_for
from tests.kube.volume import bytes_below, cli, give_to_pods, no_pods, runs_folder

LIMIT_SECONDS = 300


def finished(process: subprocess.Popen[bytes]) -> str:
    """Wait until the command has ended with success, and return its output."""
    output = process.communicate(timeout=LIMIT_SECONDS)[0].decode()
    assert process.returncode == 0, output
    return output


def test_run_comes_home_and_its_pod_goes(lab: Lab, claim: Run, tmp_path: Path) -> None:
    run = make_run(runs_folder(claim) / "first", model_bytes=3_000_000)
    give_to_pods(runs_folder(claim))
    here = tmp_path / "here"
    output = finished(cli(lab, claim, tmp_path, "fetch", "--to", str(here)))
    assert "run first with checkpoint step 100 is in" in output
    assert contents(here) == contents(run)
    add_checkpoint(run, 200, val_loss=1.25)
    give_to_pods(runs_folder(claim))
    output = finished(cli(lab, claim, tmp_path, "fetch", "first", "--to", str(here)))
    assert "with checkpoint step 200 (validation loss 1.2500)" in output
    wait_for("the pods to be gone", lambda: no_pods(lab, claim))


@pytest.mark.parametrize("by", ["auto", in_depth("exec")])
def test_fetch_goes_on_after_cut_connections(
    lab: Lab, claim: Run, gate: Gate, tmp_path: Path, by: str
) -> None:
    """A fetch goes on from what has arrived when its connections break twice.

    Bytes that have arrived are not sent again.
    """
    run = make_run(runs_folder(claim) / "first", model_bytes=60_000_000)
    give_to_pods(runs_folder(claim))
    here = tmp_path / "here"
    kubeconfig = through(lab, gate, tmp_path)
    gate.cuts_down = [5_000_000, 30_000_000]
    words = ("fetch", "--to", str(here), "--by", by)
    output = finished(cli(lab, claim, tmp_path, *words, kubeconfig=kubeconfig))
    assert "by exec" not in output  # the proxy of a real API server can be used
    assert output.count("it continues with what has arrived") >= 2, output
    assert gate.cuts_down == []
    assert contents(here) == contents(run)
    size = sum(len(content) for content in contents(run).values())
    found = re.search(r"([\d,]+) bytes sent", output)
    assert found
    assert int(found[1].replace(",", "")) <= size  # A cut block is not counted.
    wait_for("the pod to be gone", lambda: no_pods(lab, claim))


def test_fetch_that_is_ended_leaves_no_pod_and_its_partial_files(
    lab: Lab, claim: Run, gate: Gate, tmp_path: Path
) -> None:
    run = make_run(runs_folder(claim) / "first", model_bytes=60_000_000)
    give_to_pods(runs_folder(claim))
    here = tmp_path / "here"
    words = ("fetch", "first", "--to", str(here), "--streams", "1")
    gate.delay_down_seconds = 0.02  # after each 64 KiB: there is time to end it in the middle
    kubeconfig = through(lab, gate, tmp_path)
    process = cli(lab, claim, tmp_path, *words, kubeconfig=kubeconfig)
    try:
        wait_for("bytes", lambda: bytes_below(here) > 2_000_000 or process.poll() is not None)
    finally:
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=LIMIT_SECONDS)[0].decode()
        print(output)
    assert process.returncode == 130, output
    assert list(here.rglob("*.partial-*"))
    wait_for("the pod to be gone", lambda: no_pods(lab, claim))
    output = finished(cli(lab, claim, tmp_path, *words))
    assert "are here from before" in output
    assert contents(here) == contents(run)


def test_run_that_is_not_there_is_answered_with_the_others(
    lab: Lab, claim: Run, tmp_path: Path
) -> None:
    make_run(runs_folder(claim) / "first")
    give_to_pods(runs_folder(claim))
    process = cli(lab, claim, tmp_path, "fetch", "second", "--to", str(tmp_path / "here"))
    output = process.communicate(timeout=LIMIT_SECONDS)[0].decode()
    assert process.returncode == 2
    assert "run 'second' is not on the volume. The runs there: first" in output
    wait_for("the pod to be gone", lambda: no_pods(lab, claim))
