"""What `disttrain sample` says of a pod that did not come to its end: its lines cannot say it."""

from collections.abc import Mapping
from typing import Any

import pytest

from cli import sample
from infra.kube.api_server.api import Api
from tests.unit.kube.server import ApiServer, api_of


def pod(code: int, end: str, **status: str) -> dict[str, Any]:
    ended = {"state": {"terminated": {"exitCode": code, "reason": end}}}
    return {"status": {"containerStatuses": [ended], **status}}


class Cluster(ApiServer):
    def __init__(self, found: dict[str, Any] | None) -> None:
        self._found = found

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> dict[str, Any] | None:
        return self._found


def told(
    found: dict[str, Any] | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, str]:
    server = Cluster(found)
    monkeypatch.setattr(sample, "time", server)
    api: Api = api_of(server)
    return sample.exit_code(api, "/pods/a"), capsys.readouterr().err


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (pod(137, "OOMKilled"), 137, "OOMKilled"),
        (
            pod(137, "Error", reason="DeadlineExceeded", message="Pod was active too long"),
            137,
            "DeadlineExceeded: Pod was active too long",
        ),
        (None, 1, "somebody has deleted it"),
        ({"status": {"phase": "Running"}}, 1, "its end was not seen"),
    ],
    ids=["memory", "deadline", "deleted", "silent"],
)
def test_end_from_outside_is_told(
    found: dict[str, Any] | None,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It ended with that status, and without a word."""
    said = f"the pod has not come to its end: {words}\n"
    assert told(found, monkeypatch, capsys) == (code, said)


@pytest.mark.parametrize("found", [pod(0, "Completed"), pod(78, "Error"), pod(1, "Error")])
def test_end_by_itself_was_told_by_the_trainer(
    found: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(found, monkeypatch, capsys)[1] == ""
