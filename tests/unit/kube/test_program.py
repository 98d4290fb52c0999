"""The program's edges: its job, its use, the receiver of files, and what the commands read."""

import hashlib
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from cli.stack_outputs import parse_outputs
from infra.kube.__main__ import main
from infra.kube.api_server.access import Access
from infra.kube.api_server.quick_client import QuickClient, UnsupportedError
from infra.kube.files import receiver
from infra.kube.files.task_pod import TaskPod, pod_manifest
from infra.kube.files.upload import sent_file
from infra.kube.job import Job, parse_job
from infra.kube.names import OWNER_LABEL, STACK_LABEL
from infra.kube.runs.destroy_guard import refuse_namespaces_of_others
from infra.kube.runs.look import look
from infra.kube.say import ERROR

PROJECT = Path(__file__).parents[3]
LIMIT_SECONDS = 60


def program(*words: str, job: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "infra.kube", *words],
        cwd=PROJECT,
        input=job,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("words", [(), ("await",), ("await", "explode"), ("explode", "create")])
def test_wrong_use_is_answered_with_the_right_one(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words]) == 2
    assert "usage: python -m infra.kube" in capsys.readouterr().err


def test_status_of_the_program_is_that_of_its_task() -> None:
    """The engine sees no more of it than its status and its lines."""
    assert program("explode").returncode == 2
    done = program("leftovers", "delete", job="nonsense")
    assert done.returncode == 1
    assert "is no JSON" in done.stdout
    assert "Traceback" not in done.stderr


def test_task_ends_with_the_shell_that_has_started_it() -> None:
    """The engine kills the shell at Ctrl-C, and then waits until the task has closed its output. It
    waits here for its job, which does not come."""
    words = f"{sys.executable} -m infra.kube await create; true"  # no shell takes its place
    with subprocess.Popen(
        ["sh", "-c", words],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as shell:
        assert shell.stdout

        def has_begun() -> bool:
            children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
            threads = [Path(f"/proc/{child}/task") for child in children]
            return any(len([*each.iterdir()]) > 1 for each in threads)  # it watches its parent

        end = time.monotonic() + LIMIT_SECONDS
        while not has_begun():
            assert time.monotonic() < end, "the task has not begun"
            time.sleep(0.05)
        shell.kill()
        assert shell.stdout.read() == b""  # until nobody can write any more
        assert shell.stdin
        shell.stdin.close()


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({}, "names no cluster"),
        ({"kubeconfig": "x"}, "'owner' is missing"),
        ({"kubeconfig": "x: 1", "owner": "o"}, "it names no clusters"),
        ({"kubeconfig_path": "/none", "owner": "o"}, "kubeconfig /none cannot be read"),
    ],
)
def test_what_is_wrong_with_a_job_is_named(
    job: object,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("infra.kube.__main__.signal.signal", lambda *_: None)  # this process' own
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(job)))
    assert main(["leftovers", "delete"]) == 1
    assert words in capsys.readouterr().out


def test_error_keeps_the_command_at_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was cut after 500 characters, and with it the label that the user has to type."""
    guarded = {
        "own_namespaces": [{"name": "n" * 63, "subject": "the platform", "release": ""}],
        "others": "",
        "queue": {},
        "controllers": [],
    }
    job = {"kubeconfig": "clusters: []", "owner": "o" * 36, **guarded}

    def refuse(job: Job, _: object) -> None:
        api = Mock(get=lambda _: {"metadata": {"labels": {STACK_LABEL: "s" * 63}}})
        refuse_namespaces_of_others(job, api)

    monkeypatch.setattr("infra.kube.__main__.signal.signal", lambda *_: None)  # this process' own
    monkeypatch.setattr("infra.kube.runs.destroy_guard.delete", refuse)
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(job)))
    assert main(["destroy-guard", "delete"]) == 1
    said = capsys.readouterr().out
    assert said.startswith(ERROR)
    assert said.endswith(f"--overwrite {OWNER_LABEL}={'o' * 36}\n")


def test_fields_of_a_job_are_checked() -> None:
    job = parse_job(json.dumps({"kubeconfig": "x", "owner": "o", "gpus": "2", "names": "a"}))
    with pytest.raises(ValueError, match="'gpus' is '2'; it must be a whole number"):
        job.number("gpus")
    with pytest.raises(ValueError, match="'names' is 'a'; it must be a list"):
        job.texts("names")
    with pytest.raises(ValueError, match="'request' is None; it must be text"):
        job.text("request")


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "a/../../b"])
def test_uploads_stay_below_the_data_folder(target: str) -> None:
    with pytest.raises(ValueError, match="must be a path below /data"):
        sent_file({"source": "x", "target": target, "sha256": "0", "size": 1})


CONTENT = b"to be or not"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def receive(target: Path, content: bytes, offset: int) -> dict[str, object]:
    """As in the pod: the text of the program, and its answer."""
    words = ("receive", str(target), "12", SHA256, str(offset), str(len(content)))
    text = Path(receiver.__file__).read_text()
    command = [sys.executable, "-c", text, *words]
    done = subprocess.run(command, input=content, capture_output=True, check=True)
    return json.loads(done.stdout)


def test_receiver_goes_on_with_a_part_and_checks_the_whole(tmp_path: Path) -> None:
    target = tmp_path / "folder" / "text"
    assert receiver.look(target, 12, SHA256) == {"complete": False, "have": 0}
    assert receive(target, CONTENT[:5], 0) == {"got": 5}
    assert receiver.look(target, 12, SHA256) == {"complete": False, "have": 5}
    (target.parent / "text.partial-0123").write_text("of other contents")
    assert receive(target, CONTENT[5:], 5) == {"got": 7, "ok": True}
    assert receiver.look(target, 12, SHA256) == {"complete": True, "have": 0}
    assert [path.name for path in target.parent.iterdir()] == ["text"]


def test_receiver_removes_what_is_wrong(tmp_path: Path) -> None:
    answer = receive(tmp_path / "text", b"TO BE OR NOT", 0)
    wrong = hashlib.sha256(b"TO BE OR NOT").hexdigest()
    assert answer == {"got": 12, "ok": False, "found": wrong}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("output", "path"),
    [("/home/me/config", "/home/me/config"), ("mine/config", f"{PROJECT}/mine/config")],
)
def test_kubeconfig_is_found_from_any_folder(output: str, path: str) -> None:
    """pulumi sees a relative path of the settings from the project's folder."""
    place = parse_outputs({**OUTPUTS, "kubeconfig": output}, "dev")
    assert place.access.kubeconfig_path == path


def test_second_receiver_of_a_file_does_no_harm(tmp_path: Path) -> None:
    """As after a cut connection whose program went on, or with two pushes of one run at once."""
    for _ in range(2):
        assert receive(tmp_path / "text", CONTENT, 0) == {"got": 12, "ok": True}
    assert (tmp_path / "text").read_bytes() == CONTENT


def test_receiver_gives_signs_of_life_while_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A connection that is silent for a minute counts as dead, and a large file takes longer."""
    monkeypatch.setattr(receiver, "ALIVE_SECONDS", 0.0)
    target, content = tmp_path / "text", b"." * (3 * receiver.BLOCK_BYTES)
    sha256 = hashlib.sha256(content).hexdigest()
    target.write_bytes(content)
    assert receiver.look(target, len(content), sha256)["complete"]
    target.rename(receiver.partial(target, sha256))
    assert receiver.finish(target, len(content), sha256) == {"ok": True}
    assert capsys.readouterr().err == "." * 6


def test_pods_of_commands_are_restricted_and_end_by_themselves() -> None:
    """Fault 25 of the review: the sample's pod had a service account's token, and stayed for ever
    when its command was killed. tests/kube/test_upload.py has it cut off."""
    pod = TaskPod("upload", "o" * 36, "ns", "image", ("sleep",), "claim", 60)
    spec = pod_manifest(pod, "name")["spec"]
    assert spec["activeDeadlineSeconds"] == 60
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


OUTPUTS = {
    "kubeconfig": "/home/me/config",
    "kubeContext": "prod",
    "namespace": "ns",
    "owner": "o",
    "image": "i",
    "runPath": "/data/runs/r",
    "workload": "w",
    "claim": "c",
}


def test_outputs_of_a_stack_lead_to_its_run() -> None:
    place = parse_outputs(OUTPUTS, "dev")
    assert place.access == Access("", "/home/me/config", "prod")
    text = "apiVersion: v1\nclusters: []\n"
    assert parse_outputs({**OUTPUTS, "kubeconfig": text}, "dev").access.kubeconfig == text
    with pytest.raises(ValueError, match="stack dev has no run: its outputs lack claim"):
        parse_outputs({**OUTPUTS, "claim": ""}, "dev")


CONFIG = """\
current-context: a
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
clusters: [{{name: a, cluster: {{server: "https://127.0.0.1:9", {cluster}}}}}]
users: [{{name: a, user: {{{user}}}}}]
"""


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ("proxy-url: http://p", "token: t"),
        ("", "username: u"),
        ("insecure-skip-tls-verify: 1", ""),
    ],
)
def test_quick_look_leaves_uncommon_kubeconfigs_to_the_client(cluster: str, user: str) -> None:
    with pytest.raises(UnsupportedError):
        QuickClient(Access(CONFIG.format(cluster=cluster, user=user)), 1)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "clusters: 3", CONFIG.format(cluster="", user="")]
)
def test_look_never_raises(text: str) -> None:
    assert look(Access(text), "ns", "owner") == ""
    assert look(Access(kubeconfig_path="/none"), "ns", "owner") == ""


def test_look_imports_no_client() -> None:
    """It runs at each preview, and the client takes longer to import than the look takes."""
    code = "import sys, infra.kube.runs.look; print({'kubernetes', 'requests'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
