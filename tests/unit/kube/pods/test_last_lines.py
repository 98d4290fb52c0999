"""The last lines of the pods of a run that has failed."""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.kube.errors import ApiError
from infra.kube.pods.last_lines import last_lines
from infra.kube.pods.report import describe_pods
from tests.unit.kube.server import ApiServer, Json, api_of


class LostMachine(ApiServer):
    """A stand-in for a cluster with two pods. Pod a is on a machine that does not answer, and pod b
    was never restarted.
    """

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        if path.endswith("/pods"):
            container = {"name": "train"}
            pods = [
                {"metadata": {"name": name}, "spec": {"containers": [container]}} for name in "ab"
            ]
            return {"items": pods}
        if "/pods/a/" in path:
            raise ApiError(500, "Get https://10.0.0.2:10250/...: dial tcp: i/o timeout")
        if query["previous"] == "true":
            raise ApiError(400, "previous terminated container not found")
        return "ValueError: the cause\n"


def test_lost_machine_hides_no_other_pod(capsys: pytest.CaptureFixture[str]) -> None:
    """If the log of one pod cannot be read, a line says why, and the last lines of the other pods
    are still printed. Otherwise the cause of a failure could be missing.
    """
    last_lines(api_of(LostMachine()), "ml", "")
    said = capsys.readouterr().out
    assert "pod a\n(no log: 500 Get https://10.0.0.2:10250" in said
    assert "pod b\nValueError: the cause\n" in said


class SteeringPod(ApiServer):
    """A stand-in for a cluster with a pod that writes a title, a colour and a bar to a terminal."""

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> Json | str | None:
        if path.endswith("/pods"):
            container = {"name": "train"}
            return {"items": [{"metadata": {"name": "a"}, "spec": {"containers": [container]}}]}
        return "\033]0;title\007\033[31mloss\033[0m\tnan\n\033[2A\033[K50%\r100%\x9b2J\n"


def test_words_of_pods_do_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """`up` shows what pods have written without sequences that steer a terminal, such as those that
    move the cursor, and so would overwrite what Pulumi shows, or that change the window's title.
    """
    last_lines(api_of(SteeringPod()), "ml", "")
    assert capsys.readouterr().out == "--- last lines of pod a\nloss\tnan\n50%\n100%2J\n"
    waiting = {"reason": "CrashLoopBackOff", "message": "\033[2Jback\boff"}
    status = {"phase": "Running", "containerStatuses": [{"state": {"waiting": waiting}}]}
    described = describe_pods([{"metadata": {"name": "a"}, "status": status}])
    assert described == "a CrashLoopBackOff (backoff)"
