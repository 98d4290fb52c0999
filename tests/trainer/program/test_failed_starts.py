"""What `pulumi up` says while ranks fail before their first step, from the logs of real
entrypoints.
"""

from collections.abc import Mapping
from typing import Any, cast

from infra.kube.api_server.api import Api
from infra.kube.errors import ApiError
from infra.kube.runs.failed_starts import EVERY_SECONDS, FailedStarts
from tests.trainer.lab import free_port
from tests.trainer.program.desk import Desk

FAILS_ON_NODE_1 = """
import os, time

if os.environ["NODE_RANK"] == "1":
    import a_module_that_nobody_has
time.sleep(600)
"""


def pod(name: str, phase: str = "Running") -> dict[str, Any]:
    spec = {"containers": [{"name": "trainer"}]}
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}


class Logs:
    """A stand-in for an API server that gives the logs of these pods and refuses others."""

    def __init__(self, logs: Mapping[str, str]) -> None:
        self.logs, self.asked = logs, list[str]()

    def text(self, path: str, query: Mapping[str, str], seconds: float) -> str:
        assert seconds < EVERY_SECONDS  # so a lost machine does not delay the next look
        name = path.split("/")[-2]
        self.asked.append(name)
        if name not in self.logs:
            raise ApiError(403, "pods/log is forbidden")
        return "\n".join(self.logs[name].splitlines()[-int(query["tailLines"]) :])


def words_of(logs: Logs) -> str:
    """Return what `pulumi up` says of the pods `t-1` and `t-0` with these logs."""
    pods = [pod(name) for name in ("t-1", "t-0")]
    return FailedStarts(cast(Api, logs), "disttrain").words(pods)


def test_failing_rank_is_named_with_its_last_words(desk: Desk) -> None:
    """When a rank of the second node fails, `pulumi up` names that rank and shows its last line."""
    config, port = desk.python(FAILS_ON_NODE_1), free_port()
    for node in range(2):
        desk.start(config, node, nodes=2, port=port)
    for node in range(2):
        desk.wait_for("starting again", node)
    said = words_of(Logs({"t-0": desk.log(0), "t-1": desk.log(1)}))
    assert said.startswith("the last start has failed: ")
    assert "rank 1 ended with exit code 1; starting again" in said
    assert "of 3 without a newer checkpoint)" in said
    missing = "ModuleNotFoundError: No module named 'a_module_that_nobody_has'"
    assert said.endswith(f"before that: {missing}")


def test_single_node_names_its_failing_rank(desk: Desk) -> None:
    """When the rank of a single node fails, `pulumi up` names it and shows its last line."""
    config = desk.python("raise SystemExit('no data in /data')")
    assert desk.run(config) != 0
    said = words_of(Logs({"t-0": desk.log()}))
    assert "rank 0 ended with exit code 1; starting again" in said
    assert said.endswith("before that: no data in /data")


def test_nothing_is_said_of_starts_that_go_on() -> None:
    """`pulumi up` says nothing if the first log shows a start that goes on, or if no log may be
    read.
    """
    logs = Logs({"t-0": "[node 0] round 1: 2 node(s) x 1 rank(s)\nloading\n", "t-1": ""})
    assert words_of(logs) == ""
    assert logs.asked == ["t-0"]
    assert words_of(Logs({})) == ""


def test_logs_are_not_asked_at_each_look() -> None:
    """The logs are asked for at most every `EVERY_SECONDS`, and only those of pods that run."""
    now = [0.0]
    logs = Logs({"t-0": ""})
    starts = FailedStarts(cast(Api, logs), "disttrain", lambda: now[0])
    for seconds in (0.0, EVERY_SECONDS / 2, EVERY_SECONDS):
        now[0] = seconds
        starts.words([pod("t-0"), pod("t-1", phase="Pending")])
    assert logs.asked == ["t-0", "t-0"]
