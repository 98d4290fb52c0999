"""The pod that reads how a run ended on the volume has what a cluster may demand of each pod."""

from dataclasses import replace
from typing import Any

import pytest

from infra.kube.errors import TaskError
from infra.kube.runs import await_ready, steer
from infra.kube.runs.gone import how_ended
from infra.kube.runs.steer import find_workload
from tests.unit.kube.runs.gone_run import ASKER, AWAIT, GONE, TTL, Server, api_of, hand_over_of, job

DEMANDS = {
    "metadata": {"labels": {"team": "ml"}, "annotations": {"cost-center": "7"}},
    "securityContext": {"runAsUser": 5000, "runAsGroup": 5000},
}


def test_pod_has_the_user_labels_and_annotations_of_the_stack_that_asks() -> None:
    """The pod that reads the volume has `podUser`, `podLabels` and `podAnnotations`, without which
    a cluster may refuse it. They come from the stack that asks. Those in the record do not count,
    because an annotation can give a pod rights, such as a role in a cloud. The record still says
    where the pod may run.
    """
    given = {"metadata": {"labels": {"a": "1"}, "annotations": {"iam.amazonaws.com/role": "all"}}}
    wrong = {**TTL.placement, **given, "securityContext": {"runAsUser": 7, "fsGroup": 1000}}
    own = {
        "nodeSelector": {"disk": "small"},
        "metadata": {"labels": {"team": "ml"}, "annotations": {"cost-center": "7"}},
        "securityContext": {"runAsUser": 5000, "runAsGroup": 5000, "fsGroup": 5000},
    }
    server = Server(replace(GONE, ttl=replace(TTL, placement=wrong)), "finished")
    how_ended(api_of(server), server.now(), replace(ASKER, placement=own))
    pod = server.pods[0]
    assert pod["metadata"]["labels"]["team"] == "ml"
    assert "a" not in pod["metadata"]["labels"]
    assert pod["metadata"]["annotations"]["cost-center"] == "7"
    assert "iam.amazonaws.com/role" not in pod["metadata"]["annotations"]
    security = pod["spec"]["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"]) == (5000, 5000)
    assert security["fsGroup"] == 1000
    assert pod["spec"]["nodeSelector"] == {"disk": "big"}


def demanding(pod: Any) -> tuple[Any, Any, Any]:
    """Return the user, the label `team` and the annotation `cost-center` of a pod."""
    about = pod["metadata"]
    return (
        pod["spec"]["securityContext"]["runAsUser"],
        about["labels"].get("team"),
        about["annotations"].get("cost-center"),
    )


def test_resume_takes_no_rights_from_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hand-over of `./disttrain resume` has the record's fields and not those of a setting. So
    it is told no user, labels and annotations from there.
    """
    handed = list[Any]()
    monkeypatch.setattr(steer, "find_workload", lambda *_: {"metadata": {}, "status": {}})
    monkeypatch.setattr(steer, "is_stopped", lambda *_: True)
    monkeypatch.setattr(steer.hand_over, "create", lambda job, *_: handed.append(job))
    changed = replace(GONE, ttl=replace(TTL, placement={**TTL.placement, **DEMANDS}))
    assert steer.resume(api_of(Server(changed, "")), changed, "refuse", 0) == ""
    (job,) = handed
    assert job.fields["ttl"]["placement"] == TTL.placement
    assert job.fields["ttl"]["image"] == TTL.image


def test_wait_hand_over_and_stop_start_the_pod_with_what_the_cluster_demands() -> None:
    """Whoever asks first, the pod has the user, the labels and the annotations of the stack."""
    waits = Server(GONE, "finished", "all 40 steps are done")
    await_ready.create(
        job(**{**AWAIT, "own": {**vars(ASKER), "placement": DEMANDS}}), api_of(waits)
    )
    hands_over = Server(GONE, "finished", "all 40 steps are done")
    hand_over_of(hands_over, ttl={**vars(TTL), "placement": {**TTL.placement, **DEMANDS}})
    stops = Server(GONE, "finished", "all 40 steps are done")
    with pytest.raises(TaskError, match="all 40 steps are done"):
        find_workload(api_of(stops), stops.now(), replace(ASKER, placement=DEMANDS))
    for server in (waits, hands_over, stops):
        assert [demanding(pod) for pod in server.pods] == [(5000, "ml", "7")]


def test_record_chooses_neither_image_nor_claim() -> None:
    """The pod that reads the volume has the image of the stack that asks. Whoever may change the
    record, a ConfigMap, could otherwise have another user start any image with the data mounted. A
    claim that is not the platform's is not mounted.
    """
    server = Server(replace(GONE, ttl=replace(TTL, image="evil.example.com/image")), "finished")
    how_ended(api_of(server), server.now(), ASKER)
    (container,) = server.pods[0]["spec"]["containers"]
    assert container["image"] == "image"
    server = Server(replace(GONE, ttl=replace(TTL, claim="of-others")), "finished")
    with pytest.raises(TaskError, match=r"names the claim of-others, and .* has claim"):
        how_ended(api_of(server), server.now(), ASKER)
    assert server.pods == []


def test_no_pod_starts_without_a_stack() -> None:
    """`./disttrain status --kubeconfig` knows no stack, and so no image that it may trust."""
    server = Server(GONE, "finished")
    with pytest.raises(TaskError, match="only a stack says with which image"):
        how_ended(api_of(server), server.now(), None)
    assert server.pods == []


def test_hand_over_of_a_command_trusts_no_record() -> None:
    """The hand-over of `./disttrain resume` has the image and the claim of the record."""
    server = Server(GONE, "finished", "all 40 steps are done")
    hand_over_of(server, by_flag=True)
    assert server.pods == []
