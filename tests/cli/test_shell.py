"""`disttrain shell` finds its rank soon, also if other pods of the run cannot be asked."""

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
    monkeypatch.setattr(command, "ask_in_pod", ask)


def api_with(pods: Any) -> Any:
    """Return a stand-in API that can only list the pods of the run."""
    return SimpleNamespace(list=lambda *_: pods)


def test_rank_of_a_living_machine_is_found() -> None:
    """`shell` finds a rank on a living machine though a pod on a lost machine gives no answer. It
    is when a machine is lost that somebody wants to see what the other ranks do.
    """
    assert find_ranks(api_with(PODS), PLACE, 1) == {1: RankProcess("train-1", "trainer", 11)}


def test_rank_that_may_be_on_the_lost_machine_is_told_so() -> None:
    """If no pod that answers has the rank, `shell` ends with the error of the pod that gave no
    answer.
    """
    with pytest.raises(UnreachableError, match="error dialing backend"):
        find_ranks(api_with(PODS[:2]), PLACE, 0)


@pytest.mark.parametrize(
    ("wanted", "places", "asked"),
    [(43, {}, [5]), (3, {}, [0]), (43, {5: 6, 6: 5}, [5, *range(5), 6])],
)
def test_pod_that_should_have_the_rank_is_asked_first(
    wanted: int, places: dict[int, int], asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a large run it is one pod of many that has the rank, and its place in the run says which.
    A pod that has taken the place of another one may have other ranks, so the others are asked too.
    """

    def pod(number: int) -> dict[str, Any]:
        variable = {"name": "PET_NPROC_PER_NODE", "value": "8"}
        return {
            "metadata": {
                "name": f"train-{number}",
                "labels": {"batch.kubernetes.io/job-completion-index": str(number)},
            },
            "spec": {"containers": [{"name": "trainer", "env": [variable]}]},
            "status": {"phase": "Running"},
        }

    def ask(_: Any, __: str, pod: Any, *___: str, **____: str) -> dict[str, int]:
        number = int(pod["metadata"]["name"].rpartition("-")[2])
        seen.append(number)
        first = 8 * places.get(number, number)
        return {str(rank): rank for rank in range(first, first + 8)}

    seen = list[int]()
    monkeypatch.setattr(command, "ask_in_pod", ask)
    found = find_ranks(api_with([pod(number) for number in range(8)]), PLACE, wanted)
    assert found[wanted].pid == wanted
    assert seen == asked
