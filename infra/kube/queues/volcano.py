"""Stops and resumes Volcano's Jobs by commands, and reads their PodGroups and queues.

A Job of Volcano has no field that suspends it. Instead, Volcano's controller carries out Command
objects, such as those that `vcctl job suspend` and `vcctl job resume` make
(https://volcano.sh/en/docs/cli/). The controller deletes a Command before it carries it out. A Job
that is just making its pods again loses a command to abort. So the command is repeated until the
Job's phase shows that it was carried out.
"""

import re
from collections.abc import Sequence

from infra.kube.api_server.api import Api
from infra.kube.api_server.events import events_about, newest_words
from infra.kube.api_server.findings import Findings, listed, object_at, objects_at
from infra.kube.errors import ApiError, TaskError
from infra.kube.objects import Json, name_of, part, parts
from infra.kube.waiting import wait_for
from infra.kube.workload import is_suspended, phase_of

GROUP = "batch.volcano.sh"
COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/{}/commands"
POD_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
CARRIED_OUT_SECONDS = 60  # added to the grace period of pods; a controller needs under 1 s
OVER = ("Completed", "Failed", "Terminated")
NO_POD_MADE = "FailedCreate"  # the reason of the event that says why pods cannot be made
# Volcano writes the API server's answer as a value of the language Go, with this field in it.
_ANSWER = re.compile(r'Message:"((?:[^"\\]|\\.)*)"')


def carry_out(api: Api, namespace: str, item: Json, patch: Json, *, suspended: bool) -> None:
    """Give a Job a command, and wait until Volcano's controller has carried it out.

    Args:
        api: the cluster.
        namespace: the namespace of the Job.
        item: the Job.
        patch: `command`, the name of the command, and `phases`, the phases that mean suspended.
        suspended: whether the command suspends the Job, so that it is in one of these phases then,
            or resumes it, so that it is in none of them.

    Raises:
        TaskError: Volcano's controller does not carry out the command in time.
    """
    action, name = str(patch["command"]), name_of(item)
    own = api.path(str(item["apiVersion"]), str(item["kind"]), namespace, name)
    command = _command(item, action)
    path = f"{COMMANDS.format(namespace)}/{name_of(command)}"

    def ask() -> str:
        now = api.get(own)
        if now is None or phase_of(now) in OVER or is_suspended(now, patch) is suspended:
            return ""
        if api.get(path) is None:
            try:
                api.create(COMMANDS.format(namespace), command)
            except ApiError as error:
                if error.status != 409:  # 409: an earlier try of this request has made it
                    raise
        return f"its phase is {phase_of(now) or 'not set yet'}"

    is_done = False
    try:
        what = f"Volcano's controller to carry out {action} of Job {name}"
        wait_for(what, ask, CARRIED_OUT_SECONDS + _grace_seconds(item))
        is_done = True
    except TaskError as reason:
        raise TaskError(
            f"{reason}. Does the controller run? (kubectl get pods -n volcano-system)"
        ) from None
    finally:
        if not is_done:  # also after Ctrl-C: the command could still be carried out much later
            api.delete(path, {})


def _grace_seconds(item: Json) -> int:
    """How long the pods of a Job may take to end, by their longest grace period."""
    pods = [part(task, "template", "spec") for task in parts(part(item, "spec"), "tasks")]
    return max((int(pod.get("terminationGracePeriodSeconds") or 0) for pod in pods), default=0)


def _command(item: Json, action: str) -> Json:
    target = {
        "apiVersion": item["apiVersion"],
        "kind": item["kind"],
        "name": name_of(item),
        "uid": item["metadata"]["uid"],
    }
    return {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": f"{name_of(item)}-{action.lower()}", "ownerReferences": [target]},
        "action": action,
        "target": target,
    }


def words_of_gang(api: Api, namespace: str, item: Json) -> str:
    """Why Volcano has not started the pods of a Job; empty: it has, or the kind is another one."""
    if not str(item.get("apiVersion")).startswith(f"{GROUP}/"):
        return ""
    phase, spec = phase_of(item), part(item, "spec")
    if phase == "Restarting":
        count = f"restart {part(item, 'status').get('retryCount')}, and the run fails at "
        return f"Volcano makes all pods again ({count}{spec.get('maxRetry')})"
    if phase not in ("", "Pending"):
        return ""
    where = f"in queue {spec.get('queue')} of Volcano"
    try:
        group = api.get(f"{POD_GROUPS.format(namespace)}/{name_of(item)}-{item['metadata']['uid']}")
        events = events_about(api, namespace, group["metadata"]["uid"]) if group else []
    except ApiError as reason:
        return f"{where}; what it waits for cannot be read: {reason}"
    if group is None:
        return f"{where}: its controller has not taken the run up yet"
    reason = reason_of_group(group, events)
    return f"{where}: {reason}" if reason else ""


def words_of_refused_pods(api: Api, namespace: str, item: Json) -> str:
    """Why Volcano's controller cannot make pods of a Job, for example because of a quota.

    The controller says so only in an event. The text is empty if there is no such event, if these
    credentials may not read events, or if the controller is still ending the former pods.
    """
    if phase_of(item) == "Restarting":
        return ""
    try:
        found = events_about(api, namespace, str(item["metadata"]["uid"]), "Warning")
    except ApiError:
        return ""
    return newest_words([_readable(each) for each in found if each.get("reason") == NO_POD_MADE])


def _readable(event: Json) -> Json:
    """The event with only the API server's answer as its message, if the message contains one."""
    answer = _ANSWER.search(str(event.get("message")))
    return {**event, "message": answer[1].replace('\\"', '"')} if answer else event


def reason_of_group(group: Json, events: Sequence[Json]) -> str:
    """Why the pods of a PodGroup are not on their nodes, as Volcano says; empty: they are.

    A group in the phase Pending waits in its queue and has no pods yet. The true reason is in an
    event of the type Normal. A condition and other events only report a gang without pods.

    Args:
        group: the PodGroup.
        events: the events about it.
    """
    phase = part(group, "status").get("phase") or "not looked at yet"
    said = [each for each in events if each.get("reason") == "Unschedulable"]
    if phase == "Pending" and said:
        return str(max(said, key=_weight).get("message"))
    conditions = parts(part(group, "status"), "conditions")
    true = [each for each in conditions if each.get("status") == "True"]
    newest = max(true, key=lambda each: str(each.get("lastTransitionTime")), default=Json())
    if newest.get("type") == "Scheduled":
        return ""
    return str(newest.get("message") or newest.get("reason") or f"its PodGroup is {phase}")


def _weight(event: Json) -> tuple[bool, str]:
    return event.get("type") == "Normal", str(event.get("lastTimestamp"))


def volcano_queue_findings(api: Api, queue: str) -> Findings:
    """Why a run cannot be put into a queue of Volcano.

    Volcano's webhook refuses a Job in a queue that does not exist, is not open, or is the parent of
    other queues. Without the webhook, Volcano's controller would never start the Job.

    Raises:
        ApiError, UnreachableError: the cluster refuses a request or does not answer.
    """
    found = Findings()
    start = f"topologyOptions.queue: {queue!r} cannot be used"
    item = object_at(api, f"{QUEUES}/{queue}")
    if item == "unseen":
        found.unseen(f"whether Volcano has a queue {queue}")
        return found
    if item is None:
        known = listed(api, QUEUES)
        hint = f"Set one of {known}" if known else "It has none: does its scheduler run?"
        found.problems.append(f"{start}: Volcano has no such queue. {hint}")
        return found
    state = str(part(item, "status").get("state") or "Open")  # A new queue has no state yet.
    if state != "Open":
        found.problems.append(
            f"{start} now: it is {state}, so it accepts no run. "
            "Ask the administrator of the cluster to open it"
        )
    below = [
        name_of(each)
        for each in objects_at(api, QUEUES) or []
        if part(each, "spec").get("parent") == queue
    ]
    if below or queue == "root":
        which = ", ".join(sorted(below)) or "these"
        found.problems.append(f"{start}: it only groups other queues. Set one of {which}")
    return found
