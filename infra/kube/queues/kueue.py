"""Kueue's side of a run that is in a queue: the Workload object that its controller keeps.

Kueue decides when such a run has its pods, and writes `spec.suspend` of a Job or JobSet itself. So
such a run is stopped and resumed by `spec.active` of the Workload
(https://kueue.sigs.k8s.io/docs/concepts/workload/#active).

A run whose kind Kueue does not watch has no Workload, and trains although it names a queue. It is
suspended by its own field, and marked: without the mark it would look like a run that waits for its
turn.
"""

from infra.kube.api_server.api import Api
from infra.kube.errors import FORBIDDEN, ApiError, TaskError
from infra.kube.names import WITHOUT_KUEUE_ANNOTATION
from infra.kube.objects import Json, annotation, condition, label, name_of, part, parts
from infra.kube.queues.queue_place import BY_KUEUE_ITSELF
from infra.kube.queues.volcano import carry_out
from infra.kube.waiting import wait_for
from infra.kube.workload import is_suspended
from infra.names import QUEUE_LABEL

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")  # those that this program reads, the newest first
WORKLOAD_VERBS = ("get", "list", "patch")  # for what this file does with Kueue's Workloads
JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
FORGET_SECONDS = 60.0
"""For Kueue to let a Workload go that was deleted."""


def served_version(api: Api) -> str:
    """The version of Kueue's objects to ask for, such as `v1beta2`; empty: there is no Kueue.

    Raises:
        TaskError: the cluster serves other versions alone; names them.
    """
    group = api.get(f"/apis/{GROUP}")
    if group is None:
        return ""
    served = [str(each["version"]) for each in parts(group, "versions")]
    for version in VERSIONS:
        if version in served:
            return version
    raise TaskError(
        f"the cluster serves {GROUP} as {', '.join(served)}, and this program only reads "
        f"{' and '.join(VERSIONS)}: install a Kueue that serves one of them"
    )


def collection(version: str, plural: str, namespace: str = "") -> str:
    """The path of Kueue's objects of one kind; of the whole cluster without a namespace."""
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{GROUP}/{version}{inside}/{plural}"


def kueue_workload(api: Api, namespace: str, item: Json) -> Json | None:
    """The Workload that Kueue has made for an object; None where it has made none (yet).

    Raises:
        ApiError: these credentials may not read it.
        TaskError: the cluster serves a Kueue that this program does not know.
    """
    version = served_version(api)
    if not version:
        return None
    selector = f"{JOB_UID_LABEL}={item['metadata']['uid']}"
    path = collection(version, "workloads", namespace)
    found = api.list(path, selector)
    # The items of a list do not say what they are.
    return {"apiVersion": f"{GROUP}/{version}", **found[0]} if found else None


def is_stopped(api: Api, namespace: str, item: Json, suspend: Json) -> bool:
    """Whether somebody has stopped a run; one that waits in a queue for its turn is not stopped.

    Args:
        api: the cluster.
        namespace: of the run.
        item: the run's workload.
        suspend: the suspend patch of its kind.
    """
    if not is_suspended(item, suspend):
        return False
    if not label(item, QUEUE_LABEL):
        return True
    workload = kueue_workload(api, namespace, item)
    if workload is None:
        return bool(annotation(item, WITHOUT_KUEUE_ANNOTATION))
    return is_inactive(workload)


def is_inactive(workload: Json) -> bool:
    """Whether a Workload of Kueue is out of its queue until somebody puts it back."""
    return part(workload, "spec").get("active") is False


def steer(api: Api, namespace: str, item: Json, patch: Json, *, active: bool) -> None:
    """Stop or resume a run.

    Args:
        api: the cluster.
        namespace: of the run.
        item: the run's workload.
        patch: the merge patch of its kind for that, or the command; a run in a queue of Kueue
            does not need it.
        active: whether it is to have its pods, or to wait for them in its queue.

    Raises:
        TaskError: the run is in a queue, and Kueue has not taken it up, or has taken it out and
            does not take it back; or the controller of its kind does not carry out the command.
    """
    if "command" in patch:
        carry_out(api, namespace, item, patch, suspended=not active)
        return
    if active and label(item, QUEUE_LABEL):
        workload = kueue_workload(api, namespace, item)
        if workload is not None and is_given_up(workload):
            _have_it_made_again(api, namespace, item, workload)
            return
    api.patch(*_change(api, namespace, item, patch, active=active))


def is_given_up(workload: Json) -> bool:
    """Whether Kueue never gives this Workload a place again, also if it is set active. Pure.

    Kueue 0.19 puts one back that somebody has set inactive. One that it has set inactive by itself
    it leaves as it is: when a Workload becomes active, workload_controller.go looks for the reason
    `Deactivated` in the condition `Requeued`, and where Kueue did it, the cause stands behind that.
    """
    requeued = condition(workload, "Requeued")
    by_itself = str(requeued.get("reason") or "").startswith(BY_KUEUE_ITSELF)
    return requeued.get("status") == "False" and by_itself


def _have_it_made_again(api: Api, namespace: str, item: Json, workload: Json) -> None:
    """Delete a Workload of a suspended run; Kueue makes a new one, which stands in the queue."""
    uid, name = part(workload, "metadata")["uid"], name_of(workload)
    try:
        api.delete(_path_of(workload, namespace), {"preconditions": {"uid": uid}})
    except ApiError as refused:
        if refused.status != FORBIDDEN:
            raise
        raise TaskError(
            f"Kueue has taken {item['kind']} {name_of(item)} out of its queue, and takes it back "
            "only with a new Workload. You may not delete the former one. Ask somebody who may: "
            f"kubectl delete workloads.kueue.x-k8s.io -n {namespace} {name}"
        ) from None

    def is_new() -> str:
        found = kueue_workload(api, namespace, item)
        return "" if found is None or part(found, "metadata")["uid"] != uid else "it is there still"

    wait_for(f"the former Workload {name} to go", is_new, FORGET_SECONDS)


def refuse_to_suspend(api: Api, namespace: str, item: Json, suspend: Json) -> None:
    """Raise what `steer` would raise before it changes anything, see there."""
    if "command" not in suspend:
        _change(api, namespace, item, suspend, active=False)


def _change(api: Api, namespace: str, item: Json, patch: Json, *, active: bool) -> tuple[str, Json]:
    """The path of the object that is changed to stop or resume a run, and its merge patch.

    Raises:
        TaskError: the run is in a queue, and Kueue has not taken it up.
    """
    kind, name = str(item["kind"]), name_of(item)
    own = api.path(str(item["apiVersion"]), kind, namespace, name)
    queue = label(item, QUEUE_LABEL)
    if not queue:
        return own, patch
    workload = kueue_workload(api, namespace, item)
    if workload is not None:
        return _path_of(workload, namespace), {"spec": {"active": active}}
    if _trains_without(item, patch, active=active):
        mark = {WITHOUT_KUEUE_ANNOTATION: None if active else "true"}
        return own, {**patch, "metadata": {"annotations": mark}}
    raise TaskError(
        f"{kind} {name} is in queue {queue}, but Kueue has not made a Workload for it: "
        "does its controller run? (kubectl get pods -n kueue-system)"
    )


def _path_of(workload: Json, namespace: str) -> str:
    version = str(workload["apiVersion"]).rpartition("/")[2]
    return f"{collection(version, 'workloads', namespace)}/{name_of(workload)}"


def _trains_without(item: Json, patch: Json, *, active: bool) -> bool:
    """Whether a run that has no Workload is none that Kueue takes up later.

    Where Kueue watches a kind, its webhook suspends each object with a queue as it is made, and
    Kueue lets it go on only after it has made the Workload. So one that is not suspended was made
    past Kueue. One that is suspended and has no mark of ours waits for a Kueue that is slow or
    down: with a mark it would look stopped, and Kueue would start it all the same.

    If Kueue begins to watch the kind while such a run is stopped, as after a change of its
    configuration, it makes a Workload and starts the run when there is quota. From then on the
    Workload alone says whether the run is stopped. Nothing is lost then: the run has saved before
    it was suspended, and it is shown as what it is, queued or training.
    """
    if active:
        return bool(annotation(item, WITHOUT_KUEUE_ANNOTATION))
    return not is_suspended(item, patch)
