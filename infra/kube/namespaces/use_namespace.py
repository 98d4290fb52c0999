"""Task `use-namespace`: checks a namespace that somebody else has made. It does not change it."""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.namespaces.left_namespaces import refuse_left_namespaces, stays
from infra.kube.objects import is_ending, label, part
from infra.kube.paths import NAMESPACES
from infra.kube.say import say
from infra.names import PROXY_CONFIG


def create(job: Job, api: Api) -> None:
    """Check the job's namespace and print its uid.

    Raises:
        TaskError: the namespace does not exist or is being deleted; another platform is in it; or
            this stack has made it, and would now delete it, because the settings say that somebody
            else makes it.
    """
    name = job.namespace
    item = api.get(f"{NAMESPACES}/{name}")
    if item is None:
        raise TaskError(
            f"namespace: {name!r} cannot be used with namespaceExisting: use: the cluster has no "
            f"such namespace. Create it (kubectl create namespace {name}), or set "
            "namespaceExisting: refuse, so that this stack makes and deletes it"
        )
    if is_ending(item):
        raise TaskError(
            f"namespace: {name!r} cannot be used: it is being deleted, with all that is in it. "
            "Wait until it has gone and let it be made again, or set another namespace"
        )
    refuse_second_platform(job, api)
    if label(item, names.OWNER_LABEL) == job.owner and not stays(api, name, job.owner):
        raise TaskError(
            f"namespace: {name!r} cannot be used with namespaceExisting: use: this stack has made "
            "it, and would delete it at the end of this `pulumi up`, with all that is in it. "
            "Nothing was changed. Set namespaceExisting: refuse again, or set namespace to one "
            "that somebody else has made"
        )
    refuse_left_namespaces(job, api)
    say(str(part(item, "metadata")["uid"]))


def refuse_second_platform(job: Job, api: Api) -> None:
    """Raise TaskError if the platform of another stack is in the namespace.

    The objects of a platform have fixed names, so a namespace can hold only one platform. The task
    `claim-names` looks for objects that are of no platform.
    """
    found = api.get(f"{NAMESPACES}/{job.namespace}/configmaps/{PROXY_CONFIG}")
    owner = label(found, names.OWNER_LABEL) if found else ""
    if found and owner and owner != job.owner:
        stack = label(found, names.STACK_LABEL)
        whose = f"stack {stack}" if stack else "a stack of unknown name"
        way_out = f", or platform: {stack} for a run on that platform" if stack else ""
        raise TaskError(
            f"namespace: {job.namespace!r} cannot be used: it holds the platform of {whose} "
            f"(owner {owner}), and the objects of both would have the same names. "
            f"Set another namespace{way_out}"
        )
