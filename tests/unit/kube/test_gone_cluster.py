"""`pulumi destroy` of a stack whose cluster does not answer, or whose kubeconfig is gone."""

import io
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.kube.__main__ import TASKS, main
from infra.kube.api_server.api import Api
from infra.kube.gone_cluster import VARIABLE
from infra.kube.say import ERROR

KUBECONFIG = """\
current-context: a
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
clusters: [{{name: a, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: a, user: {{token: t}}}}]
"""
FIELDS: dict[str, Any] = {
    "claim": "data",
    "kept": True,
    "names": ["n"],
    "everyone": True,
    "queue": {"queue": "q", "cluster_queue": "n-q"},
    "own_namespaces": [{"name": "n", "subject": "the platform"}],
    "controller": {"name": "kueue", "title": "Kueue", "namespace": "kueue", "definitions": []},
    "cluster_queue": "n-q",
    "platform_stack": "p",
}
ASKS = [
    "claim-namespace",
    "controller-remains",
    "destroy-guard",
    "hand-over",
    "keep-claim",
    "leftovers",
    "namespace-guard",
    "open-controller",
    "open-queue",
    "run-guard",
]
Delete = Callable[..., tuple[int, str]]


@pytest.fixture
def away() -> Iterator[str]:
    """Yield a kubeconfig whose server does not answer, because nobody listens at its port."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield KUBECONFIG.format(port=closed.getsockname()[1])


@pytest.fixture
def delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Delete:
    """Return a function that runs the action `delete` of a task as the engine does. It returns the
    exit status and the output of the task.
    """
    monkeypatch.setattr("infra.kube.__main__.signal.signal", lambda *_: None)  # keep the tests' own
    monkeypatch.setattr("infra.kube.gone_cluster.PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("infra.kube.runs.destroy_guard.PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("infra.kube.runs.run_guard.PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(Api.__init__, "__defaults__", (0.0,))

    def run(task: str, kubeconfig: str = "") -> tuple[int, str]:
        path = tmp_path / "kubeconfig"
        if kubeconfig:
            path.write_text(kubeconfig)
        job = {"kubeconfig_path": str(path), "namespace": "n", "stack": "s", "owner": "o", **FIELDS}
        job["queue"] = "q" if task == "open-queue" else FIELDS["queue"]
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(job)))
        return main([task, "delete"]), capsys.readouterr().out

    return run


@pytest.mark.parametrize("task", ASKS)
@pytest.mark.parametrize("is_there", [True, False], ids=["silent", "no kubeconfig"])
def test_cluster_that_is_gone_is_forgotten(
    task: str, is_there: bool, delete: Delete, away: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the variable of Pulumi's Kubernetes provider, each task of `pulumi destroy` ends well
    although the cluster is gone, and says that it forgets the cluster. Otherwise the stack could
    never be destroyed.
    """
    monkeypatch.setenv(VARIABLE, "true")
    status, said = delete(task, away if is_there else "")
    assert status == 0, said
    (line,) = said.splitlines()
    assert "does not answer" in line if is_there else "cannot be read" in line
    assert f"{VARIABLE} is true, so what this task would remove there is forgotten" in line


@pytest.mark.parametrize("value", ["", "false"])
@pytest.mark.parametrize("task", ASKS)
@pytest.mark.parametrize("is_there", [True, False], ids=["silent", "no kubeconfig"])
def test_error_of_a_destroy_names_the_variable(
    task: str,
    is_there: bool,
    value: str,
    delete: Delete,
    away: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the variable, a task of `pulumi destroy` fails if the cluster does not answer, and
    names the variable. The cluster may be away for a moment only, so nothing may be forgotten.
    """
    monkeypatch.setenv(VARIABLE, value)
    status, said = delete(task, away if is_there else "")
    assert status == 1
    assert said.startswith(ERROR)
    assert f"{VARIABLE}=true pulumi destroy" in said


def test_kubeconfig_of_another_machine_is_noted_by_up(
    delete: Delete, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the kubeconfig is not where it was at the last `up`, as on another person's machine,
    `destroy` says how its place is noted, before it says how a cluster is forgotten that is gone.
    """
    monkeypatch.setenv(VARIABLE, "")
    status, said = delete("destroy-guard")
    assert status == 1
    assert "kubeconfig cannot be read: No such file or directory. Nothing was deleted" in said
    assert said.index("is noted by `pulumi up`") < said.index(f"{VARIABLE}=true pulumi destroy")


@pytest.mark.parametrize("task", sorted({*TASKS} - {*ASKS}))
def test_other_tasks_ask_no_gone_cluster(
    task: str, delete: Delete, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other tasks remove nothing from a cluster, so `pulumi destroy` runs them without one. A
    new task that fails here belongs into the list `ASKS`.
    """
    monkeypatch.setenv(VARIABLE, "")
    assert delete(task) == (0, "")
