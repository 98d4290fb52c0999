"""Files of this machine reach the claim through the API, and pods of commands end with them."""

import hashlib
import os
import signal
from pathlib import Path

import pytest

from infra.kube import names
from infra.kube.record import record_path
from infra.kube.runs.hand_over_request import hand_over_request
from tests.gate import Gate
from tests.kube.gate import through
from tests.kube.lab import Json, Lab, Run, wait_for
from tests.kube.volume import PODS, cli, no_pods


def job_for(run: Run, source: Path, **more: object) -> Json:
    """Return the input of the task `upload` for one file."""
    content = source.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    file = {"target": "datasets/it's here/text", "sha256": sha256, "size": len(content)}
    return run.job() | {"files": [{"source": str(source), **file}], **more}


def target_of(run: Run) -> Path:
    return Path(str(run.more["folder"])) / "datasets" / "it's here" / "text"


def test_file_is_sent_once_and_its_pod_goes(lab: Lab, claim: Run, tmp_path: Path) -> None:
    source = tmp_path / "text"
    source.write_bytes(b"to be\n" * 100)
    status, output = lab.run("upload", "create", job_for(claim, source))
    assert status == 0, output
    assert "600 bytes sent, sha256 is right" in output
    assert target_of(claim).read_bytes() == source.read_bytes()
    assert target_of(claim).stat().st_uid == 1000
    status, output = lab.run("upload", "create", job_for(claim, source))
    assert status == 0, output
    assert "text is there" in output
    wait_for("the pods to be gone", lambda: no_pods(lab, claim))


@pytest.mark.slow
def test_upload_goes_on_after_a_cut_connection(
    lab: Lab, claim: Run, gate: Gate, tmp_path: Path
) -> None:
    source = tmp_path / "text"
    source.write_bytes(os.urandom(30_000_000))
    kubeconfig = {"kubeconfig_path": str(through(lab, gate, tmp_path))}
    gate.cut_after_bytes = 10_000_000
    status, output = lab.run("upload", "create", job_for(claim, source) | kubeconfig)
    assert status == 0, output
    assert "it continues with what has arrived" in output
    assert gate.cut_after_bytes == 0  # The gate has cut the connection.
    assert target_of(claim).read_bytes() == source.read_bytes()
    assert [path.name for path in target_of(claim).parent.iterdir()] == ["text"]


def test_source_that_is_not_what_was_promised_is_refused(
    lab: Lab, claim: Run, tmp_path: Path
) -> None:
    source = tmp_path / "text"
    source.write_bytes(b"to be\n")
    job = job_for(claim, source)
    source.write_bytes(b"not to be\n")
    status, output = lab.run("upload", "create", job)
    assert status == 1
    assert "has changed since this `pulumi up` began" in output
    source.unlink()
    status, output = lab.run("upload", "create", job)
    assert f"{source} cannot be read: No such file or directory" in output
    assert not target_of(claim).exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_upload_that_is_told_to_end_takes_its_pod_away(
    lab: Lab, claim: Run, tmp_path: Path, number: signal.Signals
) -> None:
    source = tmp_path / "text"
    source.write_bytes(b"to be\n")
    job = job_for(claim, source, placement={"nodeSelector": {"no": "such-node"}})
    task = lab.start("upload", "create", job)
    task.wait_for_words("Unschedulable")
    task.process.send_signal(number)
    assert task.end()[0] == 128 + number
    wait_for("the pod to be gone", lambda: no_pods(lab, claim))


def test_look_asks_for_a_hand_over_when_the_run_does_not_stand(lab: Lab, tmp_path: Path) -> None:
    """The hand-over runs again only when the run is missing, suspended or deleted.

    The preview and the update get the same answer, and nothing fails without a kubeconfig.
    """
    namespace = lab.namespace()
    run, other = Run(lab, namespace, "dev"), Run(lab, namespace, "other")

    def ask() -> str:
        return hand_over_request(lab.access(), namespace, run.owner)

    absent = ask()
    assert absent
    assert run.hand_over(request=absent)[0] == 0
    run.make()
    assert ask() == absent  # The run trains, so nothing has to be done.
    assert other.hand_over()[0] == 0
    suspended = ask()
    assert suspended not in ("", absent)
    assert ask() == suspended  # The preview and the update get the same answer.
    other.make()
    assert run.hand_over(request=suspended)[0] == 0
    assert ask() == suspended
    lab.api.delete(run.path, {"propagationPolicy": "Background"})
    wait_for("the look to see it", lambda: ask() not in ("", suspended))
    assert lab.api.get(record_path(namespace, run.owner))
    missing = tmp_path / "kubeconfig"
    assert hand_over_request(lab.access(missing), namespace, run.owner) == ""


def test_sample_shows_the_text_and_its_pod_goes(lab: Lab, claim: Run, tmp_path: Path) -> None:
    with cli(lab, claim, tmp_path, "sample", "--", "--lines", "3") as process:
        output = process.communicate()[0].decode()
    assert process.returncode == 0, output
    assert "sample of sample --run-dir /data/runs/first --lines 3\nline 0\n" in output
    assert "line 2" in output
    wait_for("the pod to be gone", lambda: no_pods(lab, claim))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["closed pipe", "SIGINT", "SIGTERM"])
def test_sample_that_is_cut_leaves_no_pod(lab: Lab, claim: Run, tmp_path: Path, how: str) -> None:
    """`./disttrain sample` takes its pod away however it ends, for example in `sample | head`.

    Otherwise the pod would hold the claim, and `destroy` would wait for it. The pod has the
    selector and the tolerations of the training pods, so it starts where these can.
    """
    with cli(lab, claim, tmp_path, "sample", "--", "--lines", "3000") as process:
        assert process.stdout
        while b"line 0" not in process.stdout.readline():
            assert process.poll() is None
        (pod,) = lab.api.list(PODS.format(claim.namespace), names.TASK_LABEL)
        assert pod["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert "team" in [each.get("key") for each in pod["spec"]["tolerations"]]
        if how == "closed pipe":
            process.stdout.close()
        else:
            process.send_signal(getattr(signal, how))
        process.wait(60)
    wait_for("the pod to be gone", lambda: no_pods(lab, claim))


def test_logs_follow_all_pods_whatever_their_number(lab: Lab, tmp_path: Path) -> None:
    """`./disttrain logs` follows 7 pods at once. `kubectl logs -f` fails with more than 5."""
    run = Run(lab, lab.namespace(), "dev", "StatefulSet")
    run.make()
    lab.api.patch(run.path, {"spec": {"replicas": 7}})
    wait_for("7 pods that run", lambda: _running(run) == 7)
    with cli(lab, run, tmp_path, "logs") as process:
        assert process.stdout
        seen: set[str] = set()
        while len(seen) < 7:
            line = process.stdout.readline().decode()
            assert line, f"it ended after {seen}"
            if " serves on " in line:
                seen.add(line.split("]")[0])
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def _running(run: Run) -> int:
    return sum(pod["status"].get("phase") == "Running" for pod in run.pods())
