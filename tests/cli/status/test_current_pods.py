"""Of several pods that had the same place in a run, `status` counts the last one."""

from typing import Any

from cli.status.current_pods import current_pods

INDEX = "training.kubeflow.org/replica-index"


def pod(name: str, index: int, phase: str, minute: int) -> dict[str, Any]:
    """Return a pod that was made so many minutes after ten o'clock."""
    made = f"2026-11-22T10:{minute:02}:00Z"
    metadata = {"name": name, "labels": {INDEX: str(index)}, "creationTimestamp": made}
    return {"metadata": metadata, "status": {"phase": phase}}


FAILED, AGAIN = pod("launcher-a", 0, "Failed", 1), pod("launcher-b", 0, "Failed", 2)
LIVES, WORKER = pod("launcher-c", 0, "Running", 3), pod("worker-0", 1, "Running", 1)


def test_ended_pod_counts_until_another_has_its_place() -> None:
    """A failed pod counts until another pod has its place."""
    assert current_pods([FAILED, WORKER]) == [FAILED, WORKER]
    assert current_pods([FAILED, AGAIN, WORKER]) == [AGAIN, WORKER]
    assert current_pods([FAILED, AGAIN, LIVES, WORKER]) == [LIVES, WORKER]


def test_pods_that_live_all_count_whatever_their_place() -> None:
    """All pods that live count. Two of them with one place would be a fault of the controller,
    which has to be seen.
    """
    twin = pod("launcher-d", 0, "Running", 4)
    assert current_pods([LIVES, twin, WORKER]) == [LIVES, twin, WORKER]


def test_pod_of_a_finished_node_counts_beside_the_others() -> None:
    """A pod that has succeeded counts beside the others."""
    done = pod("worker-1", 2, "Succeeded", 1)
    assert current_pods([LIVES, WORKER, done]) == [LIVES, WORKER, done]
