"""Finds out what a cluster adds to the pods of a run by its own rules.

A LimitRange, the configuration of a namespace and webhooks may change each new pod. The API server
shows the changed pod as the answer to a request with dryRun. All functions are pure.
"""

from collections.abc import Iterator, Mapping

from infra.kube.objects import Json, part, parts


def as_made(asked: Json, made: Json) -> Json:
    """The spec of a pod, with what the cluster adds to it for the scheduler and for quotas.

    Args:
        asked: the pod's manifest, with one container.
        made: the pod as the API server would make it.
    """
    spec, given = part(asked, "spec"), part(made, "spec")
    own, found = _own_container(asked, made)
    decided = {key: given[key] for key in ("nodeSelector", "tolerations") if key in given}
    resources = part(found, "resources") or part(own, "resources")
    return {**spec, **decided, "containers": [{**own, "resources": resources}]}


def given_notes(namespace: str, asked: Json, made: Json) -> Iterator[str]:
    """What the user should know about the additions; see `as_made` for the arguments."""
    own, found = _own_container(asked, made)
    limits = _added(found, own, "resources", "limits")
    if amounts := ", ".join(f"{limits[key]} {key}" for key in ("cpu", "memory") if key in limits):
        yield (
            f"namespace {namespace} gives each training pod limits that no setting asks for: "
            f"{amounts} (a LimitRange). With more memory than that a pod is ended (OOMKilled), and "
            "with more CPU it is slowed down. Whoever runs the cluster can raise or remove it: "
            f"kubectl -n {namespace} get limitrange"
        )
    if labels := _added(made, asked, "spec", "nodeSelector"):
        words = ", ".join(f"{key}: {value}" for key, value in labels.items())
        yield (
            f"the cluster gives each training pod of namespace {namespace} a nodeSelector that no "
            f"setting asks for: {words}. So the pods run only on nodes with these labels"
        )
    containers = [str(each["name"]) for each in parts(part(made, "spec"), "containers")]
    others = [name for name in containers if name != own["name"]]
    if others:
        yield (
            f"the cluster adds {', '.join(others)} to the containers of each training pod in "
            f"namespace {namespace}. Kubernetes calls a pod finished only when all of its "
            "containers have ended. If these do not end by themselves, the Jobs of the data set "
            "and of the training never end, and the pods keep their GPUs. Give the pods the label "
            "or annotation by which the program that adds them leaves a pod alone (podLabels, "
            "podAnnotations), or ask whoever runs the cluster"
        )


def _own_container(asked: Json, made: Json) -> tuple[Json, Json]:
    """The only container of the manifest, and the same one as the API server would make it."""
    (own,) = parts(part(asked, "spec"), "containers")
    there = parts(part(made, "spec"), "containers")
    return own, next((each for each in there if each["name"] == own["name"]), Json())


def _added(made: Json, asked: Json, *keys: str) -> Mapping[str, object]:
    """The entries of the mapping at the path `keys` that the manifest does not have."""
    before = part(asked, *keys)
    return {key: value for key, value in part(made, *keys).items() if key not in before}
