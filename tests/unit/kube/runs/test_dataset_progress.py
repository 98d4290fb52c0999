"""What `pulumi up` shows about the Job of the data set while it waits for it."""

import asyncio
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra import task_in_hook
from infra.kube.errors import ApiError
from infra.kube.job import parse_job
from infra.kube.runs.dataset_progress import create
from infra.run import dataset_hook
from tests.unit.kube.server import ApiServer, Json, api_of
from tests.unit.stacks import deploy

NAME = "download-wiki"
QUOTA = 'pods "download-wiki-x" is forbidden: exceeded quota: team'
JOB = {
    "kubeconfig": "{}",
    "namespace": "ml",
    "owner": "o",
    "stack": "dev",
    "job": NAME,
    "timeout_seconds": 600,
}
COMPLETE: Json = {"type": "Complete", "status": "True"}
FAILED: Json = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}


def pod(phase: str) -> Json:
    return {
        "metadata": {"name": f"{NAME}-x", "uid": "u2"},
        "spec": {"nodeName": "a", "containers": [{"name": "trainer"}]},
        "status": {"phase": phase},
    }


class Cluster(ApiServer):
    """A stand-in for a cluster in which the Job gets no pod at first.

    Args:
        ready_after: the second in which the Job is made.
        runs_after: the second from which its pod runs.
        ends_after: the second in which the Job ends.
        condition: the condition with which it ends; None: the Job is deleted then.
        may_read_logs: whether these credentials may read logs.
    """

    def __init__(
        self,
        *,
        ready_after: float = 0,
        runs_after: float = 30,
        ends_after: float = 75,
        condition: Json | None = COMPLETE,
        may_read_logs: bool = True,
    ) -> None:
        self._ready_after, self._runs_after, self._ends_after = ready_after, runs_after, ends_after
        self._condition, self._may_read_logs = condition, may_read_logs

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        assert method == "GET"
        assert body is None
        if path.endswith("/log"):
            if not self._may_read_logs:
                raise ApiError(403, "pods/log is forbidden")
            return f"{self.seconds:.0f} tokens so far\n"
        if path.endswith("/events"):
            at = "2026-11-26T12:00:02Z"
            return {"items": [{"reason": "FailedCreate", "message": QUOTA, "lastTimestamp": at}]}
        if path.endswith("/pods"):
            assert query["labelSelector"] == f"batch.kubernetes.io/job-name={NAME}"
            return {"items": [pod("Running")] if self.seconds >= self._runs_after else []}
        assert path == f"/apis/batch/v1/namespaces/ml/jobs/{NAME}"
        is_over = self.seconds >= self._ends_after
        if self.seconds < self._ready_after or (is_over and self._condition is None):
            return None
        conditions = [self._condition] if is_over else []
        about = {"name": NAME, "uid": "u1"}
        return {"kind": "Job", "metadata": about, "status": {"conditions": conditions}}


def said_about(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """Run the task in the cluster's time, and return the lines that it prints."""
    for module in ("infra.kube.waiting.time", "infra.kube.runs.dataset_progress.time"):
        monkeypatch.setattr(module, cluster)
    create(parse_job(json.dumps(JOB)), api_of(cluster))
    return capsys.readouterr().out.splitlines()


def test_reason_and_progress_of_job_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`up` shows why the Job has no pod, and then the last line of the pod's log, once in 20 s."""
    lines = said_about(Cluster(), monkeypatch, capsys)
    before = f"waiting for the data set's Job {NAME}; "
    assert lines[0] == f"10 s: {before}FailedCreate: {QUOTA} (12:00:02); no pod yet"
    assert lines[1:] == [
        f"30 s: {before}30 tokens so far",
        f"50 s: {before}50 tokens so far",
        f"70 s: {before}70 tokens so far",
    ]


@pytest.mark.parametrize(
    "cluster",
    [
        Cluster(ends_after=9),
        Cluster(ready_after=3, ends_after=9),
        Cluster(ends_after=9, condition=None),
        Cluster(ends_after=0),
        Cluster(runs_after=1, ends_after=9, condition=FAILED),
    ],
    ids=["ready soon", "made late", "deleted", "ready at once", "failed"],
)
def test_job_that_ends_soon_needs_no_lines(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said_about(cluster, monkeypatch, capsys) == []


def test_job_that_never_comes_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the engine cannot make the Job, nothing is waited for after a minute."""
    cluster = Cluster(ready_after=1000)
    lines = said_about(cluster, monkeypatch, capsys)
    assert {line.split("; ")[1] for line in lines} == {"it does not exist yet"}
    assert cluster.seconds < 65


def test_first_line_of_log_is_not_old(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is shown in the first 10 s, so the log is not read before that."""
    lines = said_about(Cluster(runs_after=0, ends_after=12), monkeypatch, capsys)
    assert lines == [f"10 s: waiting for the data set's Job {NAME}; 10 tokens so far"]


def test_log_that_is_forbidden_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = said_about(Cluster(may_read_logs=False), monkeypatch, capsys)
    assert lines[-1].endswith("; its log cannot be read: pods/log is forbidden")


def test_creation_does_not_wait_for_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook only starts the task; a task that fails is a warning, and nothing else."""
    program = "import sys, time; print(sys.argv[1:], flush=True); time.sleep(0.2); sys.exit(1)"
    shown, warned = list[str](), list[str]()
    monkeypatch.setattr(task_in_hook, "PROGRAM", ("-c", program))
    monkeypatch.setattr(pulumi.log, "info", shown.append)
    monkeypatch.setattr(pulumi.log, "warn", warned.append)

    async def hook() -> None:
        showing = dataset_hook.start_to_show(json.dumps(JOB))
        assert not showing.done()
        await showing

    with ThreadPoolExecutor(1) as thread:  # keeps the main thread's event loop
        thread.submit(asyncio.run, hook()).result()
    assert shown == ["['dataset-progress', 'create']"]
    assert warned == [
        "how far the data set's Job is cannot be shown: the task dataset-progress was ended from "
        "outside"
    ]


def test_only_the_job_of_the_data_set_has_it(tmp_path: Path) -> None:
    deployment = deploy("sandbox", tmp_path)
    having = [
        each.name
        for each in deployment.resources
        if "dataset-progress" in each.request.hooks.before_create
    ]
    assert having == ["dataset-job"]
