"""Why pods are not there, from the events by which a controller says so."""

from typing import Any

from infra.kube.runs.controller_words import newest_words

Json = dict[str, Any]


def event(reason: str, message: str, **times: object) -> Json:
    return {"reason": reason, "message": message, "metadata": {}, **times}


def test_newest_event_is_told_with_its_time() -> None:
    """One that is repeated keeps the time at which it came first, and has a series."""
    again = {"lastObservedTime": "2026-11-26T12:00:03.000000Z"}
    events = [
        event("FailedCreate", "b", lastTimestamp="2026-11-26T12:00:02Z"),
        event("FailedCreate", "c", eventTime="2026-11-26T12:00:00.000000Z", series=again),
        event("FailedCreate", "a", eventTime="2026-11-26T12:00:01.000000Z"),
    ]
    assert newest_words(events) == "FailedCreate: c (12:00:03)"
    assert newest_words(events[:1] + events[2:]) == "FailedCreate: b (12:00:02)"
    assert newest_words([]) == ""


def test_trainer_that_cannot_make_its_jobset_has_a_sentence_and_a_command() -> None:
    """E7: https://github.com/kubeflow/trainer/issues/3671; the TrainJob's status stays empty."""
    message = f"TrainJob resources reconciliation failed: {'no such volume, ' * 40}"
    at = "2026-11-26T12:00:02Z"
    said = newest_words([event("TrainJobResourcesCreationFailed", message, lastTimestamp=at)])
    assert said.startswith("TrainJobResourcesCreationFailed: TrainJob resources reconciliation")
    assert "(12:00:02). Kubeflow Trainer says so in an event alone (trainer#3671)" in said
    assert said.endswith("./disttrain stop and then ./disttrain resume make it try at once")
