"""What `disttrain verify` gathers, also for a user who may not do all that it needs."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from cli.verify import gather
from infra.kube.errors import ApiError
from tests.cli.records import RECORD

POD = {"metadata": {"name": "train-a"}, "spec": {}, "status": {"phase": "Running"}}
PLACE: Any = SimpleNamespace(
    access=None, namespace="n", owner="o", run_path="/data/runs/a", world_size=1
)
LIMIT_SECONDS = 60


def test_verify_without_the_right_to_exec_shows_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """`verify` goes on without the right to run commands in pods, and notes the refusal for each
    thing that it could not see.
    """

    def refuse(*_: Any, **__: Any) -> None:
        raise ApiError(403, "pods is forbidden")

    monkeypatch.setattr(gather, "find_record", lambda *_: RECORD)
    monkeypatch.setattr(gather, "see_run", lambda *_: (SimpleNamespace(state="training"), [POD]))
    monkeypatch.setattr(gather, "ask_in_pod", refuse)
    monkeypatch.setattr(gather, "ask_by_pod", refuse)
    monkeypatch.setattr(gather, "stack_pod", lambda *_, **__: None)
    monkeypatch.setattr(gather, "_first_lines", lambda *_: "")
    seen = gather.gather(SimpleNamespace(), PLACE)  # pyright: ignore[reportArgumentType]
    assert seen.unseen == {"train-a": "pods is forbidden"}
    assert "pods is forbidden" in seen.volume_problem


def test_pods_of_a_large_run_are_asked_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod needs about ten seconds for its answer, so 64 pods one after the other would take a
    quarter of an hour. Each answer here waits for those of other pods; the results are in the order
    of the pods. A pod whose answer cannot be read does not hide those of the others.
    """
    pods = [{**POD, "metadata": {"name": f"train-{number:02}"}} for number in range(64)]
    together = threading.Barrier(gather.MOST_AT_ONCE)
    asked = dict[int, set[int]]()

    def ask(api: object, _: str, pod: Any, *__: Any, **___: Any) -> dict[str, str]:
        together.wait(LIMIT_SECONDS)
        asked.setdefault(id(api), set()).add(threading.get_ident())
        if pod is pods[7]:
            raise ValueError("Expecting value: line 1 column 1 (char 0)")
        return {"of": pod["metadata"]["name"]}

    monkeypatch.setattr(gather, "find_record", lambda *_: RECORD)
    monkeypatch.setattr(gather, "see_run", lambda *_: (SimpleNamespace(state="training"), pods))
    monkeypatch.setattr(gather, "ask_in_pod", ask)
    monkeypatch.setattr(gather, "ask_by_pod", lambda *_, **__: ({}, "not asked"))
    monkeypatch.setattr(gather, "stack_pod", lambda *_, **__: None)
    monkeypatch.setattr(gather, "_first_lines", lambda *_: "")
    seen = gather.gather(SimpleNamespace(), PLACE)  # pyright: ignore[reportArgumentType]
    names = [pod["metadata"]["name"] for pod in pods]
    assert [*seen.probes] == [name for name in names if name != "train-07"]
    assert all(probe["of"] == name for name, probe in seen.probes.items())
    assert [*seen.unseen] == ["train-07"]
    assert all(len(threads) == 1 for threads in asked.values())  # connections are not shared
