"""The next `pulumi up` of a run that has failed after its `pulumi up` had ended well."""

from dataclasses import replace
from typing import Any

import pytest

from infra.kube.errors import TaskError
from infra.kube.names import OWNER_LABEL, REVISION_LABEL
from infra.kube.runs import await_ready
from infra.kube.runs import hand_over_request as asking
from infra.kube.runs.hand_over import LEFT_ALONE
from tests.unit.kube.runs.gone_run import AWAIT, GONE, OTHER, Server, hand_over_of, job
from tests.unit.kube.server import api_of

STAYS = replace(GONE, ttl=None)


def server_with(*conditions: str, other: bool = False) -> Server:
    """Return a stand-in for a cluster whose workload has these conditions, with another run that
    trains if `other`.
    """
    server = Server(STAYS, "", other=OTHER if other else None)
    labels = {OWNER_LABEL: GONE.owner, REVISION_LABEL: GONE.revision}
    status = [{"type": each, "status": "True", "reason": "BackoffLimit"} for each in conditions]
    server.workload = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train-indexed", "uid": "u1", "labels": labels},
        "spec": {},
        "status": {"conditions": status},
    }
    return server


def request_of(server: Server) -> str:
    """Return the request that the program passes to the task `hand-over`."""
    request: Any = asking._request  # pyright: ignore[reportPrivateUsage]
    return request(api_of(server), GONE.namespace, GONE.owner)


def test_up_of_a_failed_run_fails() -> None:
    """`pulumi up` fails for a run that has failed, and names the commands that make the run again.
    Otherwise it would succeed without a word, because the engine sees no change. To delete the
    workload alone would not be enough.
    """
    server = server_with("Failed")
    assert request_of(server) != GONE.request
    with pytest.raises(TaskError) as failure:
        await_ready.create(job(**AWAIT), api_of(server))
    said = str(failure.value)
    assert said.startswith("training failed: Job train-indexed failed: Failed: BackoffLimit\n")
    assert said.endswith(
        "first run: kubectl -n disttrain delete job train-indexed. After that, `pulumi refresh` "
        "and then `pulumi up` make it again"
    )


@pytest.mark.parametrize("conditions", [(), ("Complete",)])
def test_up_of_another_run_changes_nothing(conditions: tuple[str, ...]) -> None:
    """The engine sees the same request as before for a run that trains and for one that has
    finished, so it changes nothing.
    """
    assert request_of(server_with(*conditions)) == GONE.request


def test_failed_run_suspends_no_other_one(capsys: pytest.CaptureFixture[str]) -> None:
    """A failed run suspends no other run. It does not train, so no other run has to make room
    until it is made again.
    """
    server = server_with("Failed", other=True)
    hand_over_of(server, ttl={})
    assert f"Job train-indexed has failed, {LEFT_ALONE}" in capsys.readouterr().out
    assert server.changes_of_other == []
    assert server.now().since == GONE.since


def test_failed_run_made_again_gets_its_place() -> None:
    """A failed run that the engine makes again takes the place of another run, although its old
    workload is not deleted yet.
    """
    server = server_with("Failed", other=True)
    hand_over_of(server, ttl={}, made_again=True)
    assert OTHER.suspend in server.changes_of_other
    assert server.now().since > GONE.since
