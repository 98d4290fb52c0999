"""How the program of the tasks is called, what it reads, and how the receiver of files works."""

import hashlib
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from cli.stack_outputs import parse_run
from infra.kube.__main__ import main
from infra.kube.api_server.access import Access
from infra.kube.api_server.quick_client import QuickClient, UnsupportedError
from infra.kube.files import receiver
from infra.kube.files.task_pod import TaskPod, pod_manifest
from infra.kube.files.upload import sent_file
from infra.kube.job import Job, parse_job
from infra.kube.names import OWNER_LABEL, STACK_LABEL
from infra.kube.runs.destroy_guard import refuse_namespaces_of_others
from infra.kube.runs.hand_over_request import hand_over_request
from infra.kube.say import ERROR

PROJECT = Path(__file__).parents[3]
LIMIT_SECONDS = 60


def program(*words: str, job: str = "") -> subprocess.CompletedProcess[str]:
    """Run `python -m infra.kube` with these words and this job on standard input."""
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
    """A wrong command line ends with status 2 and the correct usage."""
    assert main([*words]) == 2
    assert "usage: python -m infra.kube" in capsys.readouterr().err


def test_status_of_the_program_is_that_of_its_task() -> None:
    """The program ends with the status of its task, and its output names the error without a
    traceback. The engine sees nothing else of a task.
    """
    assert program("explode").returncode == 2
    done = program("leftovers", "delete", job="nonsense")
    assert done.returncode == 1
    assert "is no JSON" in done.stdout
    assert "Traceback" not in done.stderr


def test_task_ends_with_the_shell_that_has_started_it() -> None:
    """A task ends if the shell that has started it is killed. At Ctrl-C the engine kills the shell
    and then waits until the task has closed its output. The task waits here for a job that does not
    come.
    """
    words = f"{sys.executable} -m infra.kube await create; true"  # with `; true` the shell stays
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
            return any(len([*each.iterdir()]) > 1 for each in threads)  # one watches the parent

        end = time.monotonic() + LIMIT_SECONDS
        while not has_begun():
            assert time.monotonic() < end, "the task has not begun"
            time.sleep(0.05)
        shell.kill()
        assert shell.stdout.read() == b""  # no process has the output open
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
    monkeypatch.setattr("infra.kube.__main__.signal.signal", lambda *_: None)  # keep the tests' own
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(job)))
    assert main(["leftovers", "delete"]) == 1
    assert words in capsys.readouterr().out


def test_error_keeps_the_command_at_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A long error is printed with the command at its end that the user has to type. Otherwise a
    cut after 500 characters would remove this command.
    """
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

    monkeypatch.setattr("infra.kube.__main__.signal.signal", lambda *_: None)  # keep the tests' own
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
    """Run the receiver as in the pod, by the text of its program, and return its answer."""
    words = ("receive", str(target), "12", SHA256, str(offset), str(len(content)))
    text = Path(receiver.__file__).read_text()
    command = [sys.executable, "-c", text, *words]
    done = subprocess.run(command, input=content, capture_output=True, check=True)
    return json.loads(done.stdout)


def test_receiver_goes_on_with_a_part_and_checks_the_whole(tmp_path: Path) -> None:
    """The receiver continues after the bytes that have arrived, checks the whole file and then
    gives it its name. Parts of other contents are removed.
    """
    target = tmp_path / "folder" / "text"
    assert receiver.look(target, 12, SHA256) == {"complete": False, "have": 0}
    assert receive(target, CONTENT[:5], 0) == {"got": 5}
    assert receiver.look(target, 12, SHA256) == {"complete": False, "have": 5}
    (target.parent / "text.partial-0123").write_text("of other contents")
    assert receive(target, CONTENT[5:], 5) == {"got": 7, "ok": True}
    assert receiver.look(target, 12, SHA256) == {"complete": True, "have": 0}
    assert [path.name for path in target.parent.iterdir()] == ["text"]


def test_receiver_removes_what_is_wrong(tmp_path: Path) -> None:
    """The receiver removes a file with a wrong sha256, so that it is sent again."""
    answer = receive(tmp_path / "text", b"TO BE OR NOT", 0)
    wrong = hashlib.sha256(b"TO BE OR NOT").hexdigest()
    assert answer == {"got": 12, "ok": False, "found": wrong}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("output", "path"),
    [("/home/me/config", "/home/me/config"), ("mine/config", f"{PROJECT}/mine/config")],
)
def test_kubeconfig_is_found_from_any_folder(output: str, path: str) -> None:
    """A relative path of a kubeconfig in the outputs of a stack starts at the project's folder, as
    for `pulumi`. So the commands work in any folder.
    """
    place = parse_run({**OUTPUTS, "kubeconfig": output}, "dev")
    assert place.access.kubeconfig_path == path


def test_second_receiver_of_a_file_does_no_harm(tmp_path: Path) -> None:
    """A file that is received twice stays complete. This happens if a receiver goes on after its
    connection was cut, or if two pushes of one run happen at once.
    """
    for _ in range(2):
        assert receive(tmp_path / "text", CONTENT, 0) == {"got": 12, "ok": True}
    assert (tmp_path / "text").read_bytes() == CONTENT


def test_receiver_gives_signs_of_life_while_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The receiver writes dots while it reads a large file. Otherwise the connection would be
    silent for a minute and count as dead.
    """
    monkeypatch.setattr(receiver, "ALIVE_SECONDS", 0.0)
    target, content = tmp_path / "text", b"." * (3 * receiver.BLOCK_BYTES)
    sha256 = hashlib.sha256(content).hexdigest()
    target.write_bytes(content)
    assert receiver.look(target, len(content), sha256)["complete"]
    target.rename(receiver.partial(target, sha256))
    assert receiver.finish(target, len(content), sha256) == {"ok": True}
    assert capsys.readouterr().err == "." * 6


def test_pods_of_commands_are_restricted_and_end_by_themselves() -> None:
    """The pod of a command has no token of a service account and few rights, and ends by itself
    after its deadline. Otherwise the pod would stay forever if the command is killed.
    tests/kube/test_upload.py cuts such a command off.
    """
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
    """The outputs of a stack say how its run is reached, by a path or the text of a kubeconfig. A
    stack without a run is named as such.
    """
    place = parse_run(OUTPUTS, "dev")
    assert place.access == Access("", "/home/me/config", "prod")
    text = "apiVersion: v1\nclusters: []\n"
    assert parse_run({**OUTPUTS, "kubeconfig": text}, "dev").access.kubeconfig == text
    with pytest.raises(ValueError, match="stack dev has no run: its outputs lack runPath"):
        parse_run({**OUTPUTS, "runPath": ""}, "dev")


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
    """The quick client refuses a kubeconfig with settings that only the official client can use."""
    with pytest.raises(UnsupportedError):
        QuickClient(Access(CONFIG.format(cluster=cluster, user=user)), 1)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "clusters: 3", CONFIG.format(cluster="", user="")]
)
def test_look_never_raises(text: str) -> None:
    """`look`, which asks the cluster at each preview, returns an empty text if the kubeconfig
    cannot be used or the cluster does not answer.
    """
    assert hand_over_request(Access(text), "ns", "owner") == ""
    assert hand_over_request(Access(kubeconfig_path="/none"), "ns", "owner") == ""


def test_look_imports_no_client() -> None:
    """`hand_over_request` does not import the official client. It runs at each preview, and the
    import takes longer than the question itself.
    """
    module = "infra.kube.runs.hand_over_request"
    code = f"import sys, {module}; print({{'kubernetes', 'requests'}} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
