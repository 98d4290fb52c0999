"""`disttrain sample` says why its pod ended early, which the pod's own lines cannot say."""

from collections.abc import Mapping
from typing import Any

import pytest

from cli import sample
from infra.kube.api_server.api import Api
from tests.unit.kube.server import ApiServer, api_of


def pod(code: int, end: str, **status: str) -> dict[str, Any]:
    """Return a pod whose container ended with this exit code and reason."""
    ended = {"state": {"terminated": {"exitCode": code, "reason": end}}}
    return {"status": {"containerStatuses": [ended], **status}}


class Cluster(ApiServer):
    """A stand-in cluster that gives the same pod, or none, in every answer."""

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
    """Return the exit status of `sample` for this pod, and what it wrote to standard error."""
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
    """`sample` says what ended a pod that was ended from outside, and gives a status that is not 0.
    Otherwise the command would end without a word.
    """
    said = f"the pod has not come to its end: {words}\n"
    assert told(found, monkeypatch, capsys) == (code, said)


@pytest.mark.parametrize("found", [pod(0, "Completed"), pod(78, "Error"), pod(1, "Error")])
def test_end_by_itself_was_told_by_the_trainer(
    found: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`sample` adds nothing when the trainer in the pod ended by itself: the trainer has said
    why.
    """
    assert told(found, monkeypatch, capsys)[1] == ""
