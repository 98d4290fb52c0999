"""Which pods are given up when a machine is lost, and how: only pods that have not ended, on
machines that stay silent. The API server is a stand-in.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.in_cluster.api import Api, Trouble
from infra.in_cluster.lasting import Lasting
from infra.in_cluster.lost_nodes import Pod, is_silent, living, look
from tests.unit.in_cluster.server import Server, api_of, serving

UID = "1-2-3"


def pod(name: str, node: str, phase: str = "Running") -> dict[str, Any]:
    """Return a pod on this node; an empty text: it is on none."""
    spec = {"nodeName": node} if node else {}
    return {"metadata": {"name": name, "uid": UID}, "spec": spec, "status": {"phase": phase}}


def node(ready: str) -> dict[str, Any]:
    """Return a node whose condition Ready has this status."""
    return {"status": {"conditions": [{"type": "Ready", "status": ready}]}}


def test_machine_is_lost_after_silence_without_a_break() -> None:
    """A machine counts as lost only if it was silent for the whole time. An answer in between
    starts the time again.
    """
    silence = Lasting(patience_seconds=10)
    assert silence.lasting(["a", "b"], 100) == set()
    assert silence.lasting(["a"], 109) == set()
    assert silence.lasting(["a", "b"], 110) == {"a"}  # b was not silent at 109
    assert silence.lasting(["a", "b"], 120) == {"a", "b"}
    assert silence.lasting([], 130) == set()


def test_pods_without_a_machine_or_with_an_end_are_left() -> None:
    """Pods that are on no machine or have ended are left as they are."""
    pods = [pod("a", "n1"), pod("b", ""), pod("c", "n1", "Succeeded"), pod("d", "n2", "Failed")]
    assert living(pods) == [Pod("a", UID, "n1")]


def test_only_a_kubelet_that_is_missed_is_silent() -> None:
    """A machine is silent only if nothing is heard of its kubelet. A kubelet that says that its
    node is not ready still ends pods itself.
    """
    assert is_silent(node("Unknown"))
    assert not is_silent(node("False"))
    assert not is_silent(node("True"))
    assert not is_silent({})


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a stand-in for the API server with a lost machine and a healthy one."""
    pods = [pod("on-lost", "lost"), pod("on-well", "well"), pod("gone", "without")]
    objects = {
        "/api/v1/namespaces/team/pods": {"items": pods},
        "/api/v1/nodes/lost": node("Unknown"),
        "/api/v1/nodes/well": node("True"),
    }
    with serving(Server(objects)) as made:
        yield made


@pytest.fixture
def api(server: Server, tmp_path: Path) -> Api:
    """Return the API as the pod uses it."""
    return api_of(server, tmp_path)


def test_pod_on_a_lost_machine_is_failed_and_then_deleted(
    server: Server, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pod on a lost machine is set to Failed and then deleted, as Kubernetes does itself for a
    machine that is surely off. No other pod is changed.
    """
    look(api, Lasting(patience_seconds=0))
    patch, delete = server.done
    place = "/api/v1/namespaces/team/pods/on-lost"
    assert (patch[:2], delete[:2]) == (("PATCH", f"{place}/status"), ("DELETE", place))
    assert patch[2]["metadata"] == {"uid": UID}
    assert patch[2]["status"]["phase"] == "Failed"
    assert patch[2]["status"]["conditions"][0]["type"] == "DisruptionTarget"
    assert server.queries[0].startswith("labelSelector=app.kubernetes.io%2Fname%3Ddisttrain&")
    assert delete[2] == {"gracePeriodSeconds": 0, "preconditions": {"uid": UID}}
    said = capsys.readouterr().out
    assert said == "lost does not answer: gave up pod on-lost, so that another one can start\n"


def test_machine_that_may_come_back_keeps_its_pods(server: Server, api: Api) -> None:
    """The pods of a machine that has been silent for a short time stay."""
    silence = Lasting(patience_seconds=3600)
    look(api, silence)
    look(api, silence)
    assert server.done == []


@pytest.mark.parametrize(("status", "is_trouble"), [(404, False), (409, False), (403, True)])
def test_refusal_counts_unless_another_was_quicker(
    server: Server, api: Api, status: int, is_trouble: bool
) -> None:
    """A change that is refused because the pod is gone or has changed is no error. A missing right
    is one.
    """
    server.refuses = {"status": status}
    if is_trouble:
        with pytest.raises(OSError, match="403"):
            look(api, Lasting(patience_seconds=0))
    else:
        look(api, Lasting(patience_seconds=0))


def test_trouble_is_said_once_until_it_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    """The same error is logged once until it is over. The pod looks every few seconds, and people
    read its log.
    """
    trouble = Trouble()
    for error in (OSError("away"), OSError("away"), None, OSError("away"), OSError("refused")):
        with trouble.said():
            if error:
                raise error
    said = [line.split(": ")[1] for line in capsys.readouterr().out.splitlines()]
    assert said == [f"{what}; trying again" for what in ("away", "away", "refused")]
