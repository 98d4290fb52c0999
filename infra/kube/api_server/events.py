"""Reads events of Kubernetes, in which its programs report what the status of an object lacks."""

from collections.abc import Sequence

from infra.kube.api_server.api import Api
from infra.kube.objects import Json, part, parts
from infra.kube.paths import NAMESPACES
from infra.kube.say import shorten

MOST_CHARACTERS = 300


def events_about(api: Api, namespace: str, uid: str, only: str = "") -> list[Json]:
    """The events about an object. Raises ApiError and UnreachableError.

    Args:
        api: the cluster.
        namespace: the namespace of the object.
        uid: the uid of the object.
        only: the type of the events, such as `Warning`; empty: all types.
    """
    selector = f"involvedObject.uid={uid}" + (f",type={only}" if only else "")
    path = f"{NAMESPACES}/{namespace}/events"
    return parts(api.request("GET", path, query={"fieldSelector": selector}), "items")


def newest_words(events: Sequence[Json]) -> str:
    """The newest event as text, such as `FailedCreate: pods "a" is forbidden (12:03:44)`.

    This function is pure.

    The text is empty if there is no event. The time is in UTC, by the clock of the cluster.
    """
    newest = max(events, key=_time, default=None)
    if newest is None:
        return ""
    words = shorten(f"{newest.get('reason')}: {newest.get('message')}", MOST_CHARACTERS)
    return f"{words} ({_time(newest)[11:19]})"


def _time(event: Json) -> str:
    """When the event occurred last.

    An event that occurred once has no `series`, and older clients write other fields.
    """
    told = (
        part(event, "series").get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        part(event, "metadata").get("creationTimestamp"),
    )
    return next((str(time) for time in told if time), "")
