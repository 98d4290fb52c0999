"""`disttrain shell` finds its rank though other pods of the run cannot be asked."""

from types import SimpleNamespace
from typing import Any

import pytest

from cli.shell import command
from cli.shell.command import RankProcess, find_ranks
from infra.kube.errors import UnreachableError
from tests.cli.records import RECORD

PLACE: Any = SimpleNamespace(namespace="n", owner="o")
PODS = [
    {
        "metadata": {"name": f"train-{number}"},
        "spec": {"containers": [{"name": "trainer"}]},
        "status": {"phase": "Running"},
    }
    for number in range(3)
]


@pytest.fixture(autouse=True)
def first_pod_is_on_a_lost_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first of three pods give no answer, although Kubernetes shows it as Running.

    The second pod has rank 1. The third pod must not be asked.
    """

    def ask(_: Any, __: str, pod: Any, *___: str, **____: str) -> dict[str, int]:
        number = PODS.index(pod)
        if number == 0:
            raise UnreachableError("error dialing backend: i/o timeout")
        assert number == 1, "the rank was found before"
        return {"1": 11}

    monkeypatch.setattr(command, "find_record", lambda *_: RECORD)
    monkeypatch.setattr(command, "see_run", lambda *_: (None, PODS))
    monkeypatch.setattr(command, "ask_in_pod", ask)


def test_rank_of_a_living_machine_is_found() -> None:
    """`shell` finds a rank on a living machine though a pod on a lost machine gives no answer. It
    is when a machine is lost that somebody wants to see what the other ranks do.
    """
    assert find_ranks(Any, PLACE, 1) == {1: RankProcess("train-1", "trainer", 11)}  # pyright: ignore


def test_rank_that_may_be_on_the_lost_machine_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no pod that answers has the rank, `shell` ends with the error of the pod that gave no
    answer.
    """
    monkeypatch.setattr(command, "see_run", lambda *_: (None, PODS[:2]))
    with pytest.raises(UnreachableError, match="error dialing backend"):
        find_ranks(Any, PLACE, 0)  # pyright: ignore
