"""Stops and resumes runs in a queue of Kueue, through Kueue's Workload objects.

Kueue's controller makes a Workload for each run in a queue. Kueue decides when such a run gets its
pods, and writes `spec.suspend` of a Job or JobSet itself. So the run is stopped and resumed by
`spec.active` of the Workload (https://kueue.sigs.k8s.io/docs/concepts/workload/#active).

If Kueue does not watch the kind of a run, the run has no Workload, and trains although it names a
queue. Such a run is suspended by its own field, and gets an annotation. Without the annotation it
would look like a run that waits for its turn. The same is done with a run that Kueue takes for
finished, although its pods go on.
"""

from infra.kube.api_server.api import Api
from infra.kube.errors import FORBIDDEN, ApiError, TaskError
from infra.kube.names import WITHOUT_KUEUE_ANNOTATION
from infra.kube.objects import Json, annotation, condition, is_true, label, name_of, part, parts
from infra.kube.queues.queue_place import BY_KUEUE_ITSELF
from infra.kube.queues.volcano import carry_out
from infra.kube.waiting import wait_for
from infra.kube.workload import is_suspended
from infra.names import QUEUE_LABEL

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")  # the versions that this program reads, newest first
# What this file does with Workloads. To resume a run that Kueue has given up, it also deletes one;
# where that is not allowed, an error says whom to ask.
WORKLOAD_VERBS = ("get", "list", "patch")
JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
BY_PODS = ("StatefulSet", "LeaderWorkerSet")
"""The kinds that have no field to suspend them, so that Kueue holds back their pods.

Kueue puts objects of these kinds, too, into the LocalQueue `default` of their namespace, and makes
Workloads of them. But if such a Workload is set inactive, the pods are made again at once, and
wait. So a run of these kinds is stopped and resumed by its field `replicas`, which Kueue allows.
"""
DENIED = '"v{}.kb.io" denied the request'
"""Part of the API server's message if Kueue's webhook for a kind in lower case refuses a change."""
FORGET_SECONDS = 60.0
"""How long Kueue may take to let a Workload go that is deleted, or whose pods have ended."""


def served_version(api: Api) -> str:
    """The version of Kueue's objects to use, such as `v1beta2`; empty: there is no Kueue.

    Raises:
        TaskError: the cluster serves only versions that this program does not know. The text names
            them.
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
    """The path of Kueue's objects of one kind; without a namespace, those of the whole cluster."""
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{GROUP}/{version}{inside}/{plural}"


def queue_of(item: Json) -> str:
    """The queue in which Kueue holds back an object as a whole; empty: it is in none.

    This function is pure.
    """
    return "" if item.get("kind") in BY_PODS else label(item, QUEUE_LABEL)


def holds_back_pods(item: Json) -> bool:
    """Whether Kueue holds back the pods of an object, and not the object as a whole.

    This function is pure.
    """
    return item.get("kind") in BY_PODS and bool(label(item, QUEUE_LABEL))


def kueue_workload(api: Api, namespace: str, item: Json) -> Json | None:
    """The Workload that Kueue has made for an object; None: it has made none (yet).

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
    # The items of a list have no `apiVersion`.
    return {"apiVersion": f"{GROUP}/{version}", **found[0]} if found else None


def _deciding(api: Api, namespace: str, item: Json) -> Json | None:
    """The Workload by which Kueue decides about an object; None: there is none, or it is finished.

    Kueue leaves an object alone whose Workload is finished. Its pods may still go on: the MPI
    Operator calls an MPIJob failed when a worker was evicted, and so Kueue takes it for finished.
    The errors are those of `kueue_workload`.
    """
    found = kueue_workload(api, namespace, item)
    return None if found is None or is_true(found, "Finished") else found


def is_stopped(api: Api, namespace: str, item: Json, suspend: Json) -> bool:
    """Whether somebody has stopped a run. A run that waits in a queue for its turn is not stopped.

    Args:
        api: the cluster.
        namespace: the namespace of the run.
        item: the run's workload.
        suspend: the suspend patch of the workload's kind.
    """
    if not is_suspended(item, suspend):
        return False
    if not queue_of(item):
        return True
    workload = _deciding(api, namespace, item)
    if workload is None:
        return bool(annotation(item, WITHOUT_KUEUE_ANNOTATION))
    return is_inactive(workload)


def is_inactive(workload: Json) -> bool:
    """Whether a Workload is out of its queue until somebody sets it active again."""
    return part(workload, "spec").get("active") is False


def steer(api: Api, namespace: str, item: Json, patch: Json, *, active: bool) -> None:
    """Stop or resume a run.

    Args:
        api: the cluster.
        namespace: the namespace of the run.
        item: the run's workload.
        patch: the kind's merge patch or command for this. A run with a Workload of Kueue does not
            need the merge patch.
        active: True: resume the run, so that it has its pods or waits for them in its queue. False:
            stop it.

    Raises:
        TaskError: Kueue has not taken up the run, has taken it out of its queue and does not take
            it back, or keeps refusing to resume it; or the controller of the kind does not carry
            out the command.
    """
    if "command" in patch:
        carry_out(api, namespace, item, patch, suspended=not active)
        return
    if active and queue_of(item):
        workload = _deciding(api, namespace, item)
        if workload is not None and is_given_up(workload):
            _have_it_made_again(api, namespace, item, workload)
            return
    path, change = _change(api, namespace, item, patch, active=active)
    if not (active and holds_back_pods(item)):
        api.patch(path, change)
        return

    def resume() -> str:
        """Kueue refuses this while it still has the Workload of the pods that have ended."""
        try:
            api.patch(path, change)
        except ApiError as refused:
            if DENIED.format(str(item["kind"]).lower()) not in str(refused):
                raise
            return str(refused)
        return ""

    wait_for("Kueue to forget the former pods", resume, FORGET_SECONDS)


def is_given_up(workload: Json) -> bool:
    """Whether Kueue never gives this Workload a place again, even if it is set active.

    This function is pure.

    Kueue 0.19 puts a Workload back that somebody else has set inactive, but not one that Kueue
    itself has set inactive. When a Workload becomes active, workload_controller.go compares the
    reason of the condition `Requeued` with `Deactivated`. If Kueue has set the Workload inactive,
    that reason has a cause appended, so it is not equal.
    """
    requeued = condition(workload, "Requeued")
    by_itself = str(requeued.get("reason") or "").startswith(BY_KUEUE_ITSELF)
    return requeued.get("status") == "False" and by_itself


def _have_it_made_again(api: Api, namespace: str, item: Json, workload: Json) -> None:
    """Delete the Workload of a suspended run. Kueue then makes a new one, which is in the queue."""
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
    """Raise the errors that `steer` would raise before it changes anything."""
    if "command" not in suspend:
        _change(api, namespace, item, suspend, active=False)


def _change(api: Api, namespace: str, item: Json, patch: Json, *, active: bool) -> tuple[str, Json]:
    """The path of the object that is changed to stop or resume a run, and its merge patch.

    Raises:
        TaskError: the run is in a queue, and Kueue has not taken it up.
    """
    kind, name = str(item["kind"]), name_of(item)
    own = api.path(str(item["apiVersion"]), kind, namespace, name)
    queue = queue_of(item)
    if not queue:
        return own, patch
    workload = _deciding(api, namespace, item)
    if workload is not None:
        return _path_of(workload, namespace), {"spec": {"active": active}}
    if _trains_without(item, patch, active=active):
        annotations = {WITHOUT_KUEUE_ANNOTATION: None if active else "true"}
        return own, {**patch, "metadata": {"annotations": annotations}}
    raise TaskError(
        f"{kind} {name} is in queue {queue}, but Kueue has not made a Workload for it: "
        "does its controller run? (kubectl get pods -n kueue-system)"
    )


def _path_of(workload: Json, namespace: str) -> str:
    version = str(workload["apiVersion"]).rpartition("/")[2]
    return f"{collection(version, 'workloads', namespace)}/{name_of(workload)}"


def _trains_without(item: Json, patch: Json, *, active: bool) -> bool:
    """Whether Kueue does not watch a run without a Workload, so that it trains without Kueue.

    If Kueue watches a kind, its webhook suspends each new object that names a queue, and Kueue lets
    the object start only after it has made the Workload. So an object without a Workload that is
    not suspended was made without Kueue. If it is suspended and does not have our annotation, it
    waits for a Kueue that is slow or down. The annotation would make it look stopped, although
    Kueue would start it later.

    If Kueue begins to watch the kind while such a run is stopped, for example after a change of its
    configuration, it makes a Workload and starts the run when there is quota. From then on only the
    Workload says whether the run is stopped. Nothing is lost in this case, because the run saved
    before it was suspended, and its true state (queued or training) is shown.
    """
    if active:
        return bool(annotation(item, WITHOUT_KUEUE_ANNOTATION))
    return not is_suspended(item, patch)
