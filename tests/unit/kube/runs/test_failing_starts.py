"""What `pulumi up` prints while ranks fail before their first step.

tests/trainer/program/test_failed_starts.py tests what real pods write.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from infra.kube.errors import TaskError
from infra.kube.runs import await_ready
from tests.cli.records import RECORD
from tests.unit.kube.runs.gone_run import AWAIT, GONE, Server, job
from tests.unit.kube.server import api_of

WHY = "rank 0 ended with exit code 1; starting again in 4 s (restart 4 of 10)"
LOG = f"[node 0] round 1: 1 rank(s)\nNo module named 'psutil'\n[node 0] training stopped: {WHY}\n"
POD = {
    "metadata": {"name": "train-0"},
    "spec": {"containers": [{"name": "trainer"}]},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
}


class FailingServer(Server):
    """A stand-in for a cluster with the workload of a run, whose one pod runs and never becomes
    ready.
    """

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        if path.endswith("/pods/train-0/log"):
            return LOG
        if path.endswith("/pods") and method == "GET":
            return {"items": [POD]}
        return super().answer(method, path, query, body)


def test_wait_says_why_the_start_has_failed(capsys: pytest.CaptureFixture[str]) -> None:
    """`pulumi up` prints at once why the last start has failed, and not only at its limit. The
    reason is at the beginning of the line, because the end may be cut off.
    """
    server = FailingServer(replace(RECORD, workload=GONE.workload), "")
    server.workload = {"metadata": {"uid": "u1"}, "status": {}}
    with pytest.raises(TaskError, match="the last start has failed: rank 0 ended with"):
        await_ready.create(job(**{**AWAIT, "timeout_seconds": 1}), api_of(server))
    words = f"the last start has failed: {WHY}; before that: No module named 'psutil'"
    said = capsys.readouterr().out
    assert f"0 s: waiting for 1 ready pods of Job train-indexed; {words}; 0 of 1 pods" in said
