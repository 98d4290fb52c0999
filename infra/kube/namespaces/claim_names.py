"""Task `claim-names`: refuses to take over objects of others that have the names of a platform's.

The engine applies objects on the server's side. An object of the same name that somebody else has
made would silently be changed by that, and `pulumi destroy` would delete it.
"""

from collections.abc import Iterable, Sequence

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, object_at
from infra.kube.errors import TaskError
from infra.kube.foreign import belongs, is_foreign
from infra.kube.job import Job
from infra.kube.objects import Json


def create(job: Job, api: Api) -> None:
    """Look for an object at each of the job's `paths`.

    Raises:
        TaskError: an object is there that does not belong to this stack.
    """
    found = [(path, api.get(path)) for path in job.texts("paths")]
    if problem := refusal(job.namespace, found, job.owner):
        raise TaskError(problem)


def names_findings(api: Api, namespace: str, paths: Sequence[str], owner: str) -> Findings:
    """What the task would refuse, for a preview. Raises ApiError and UnreachableError.

    Args:
        api: the cluster.
        namespace: the namespace of the platform.
        paths: the API server's paths of the platform's objects.
        owner: the owner id of this stack; empty: it has made no object yet.
    """
    found = Findings()
    seen = [(path, object_at(api, path)) for path in paths]
    unseen = [_shown(path) for path, item in seen if item == "unseen"]
    if unseen:
        found.unseen(f"whether others have objects of these names: {', '.join(unseen)}")
    there = [(path, item) for path, item in seen if isinstance(item, dict)]
    if problem := refusal(namespace, there, owner):
        found.problems.append(problem)
    return found


def refusal(namespace: str, found: Iterable[tuple[str, Json | None]], owner: str) -> str:
    """Why the namespace cannot be used; empty: it can. This function is pure.

    Args:
        namespace: the namespace of the platform.
        found: the path of each object that the platform needs, and what is there.
        owner: the owner id of this stack.
    """
    taken = [
        f"{_shown(path)}, which {belongs(item)}"
        for path, item in found
        if item is not None and is_foreign(item, owner)
    ]
    if not taken:
        return ""
    return (
        f"namespace: {namespace!r} cannot be used: this stack needs objects of names that exist on "
        f"the cluster already: {'; '.join(taken)}. `pulumi up` would change them and `pulumi "
        "destroy` would delete them, so they are left as they are. Set another namespace: pulumi "
        "config set namespace NAME"
    )


def _shown(path: str) -> str:
    """The kind and the name in a path, such as `secrets/proxy-config`."""
    return "/".join(path.split("/")[-2:])
