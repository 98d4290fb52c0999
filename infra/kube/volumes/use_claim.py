"""Task `use-claim`: checks a claim that somebody else has made. It changes nothing."""

from infra.kube.api_server.api import Api
from infra.kube.errors import TaskError
from infra.kube.job import Job
from infra.kube.say import say
from infra.kube.volumes.left_claims import refuse_left_claims
from infra.kube.volumes.storage_findings import StorageNeeds, storage_findings


def create(job: Job, api: Api) -> None:
    """Check that pods can mount the job's `claim`.

    Raises:
        TaskError: the pods cannot mount it, or another claim of this stack is still needed.
    """
    refuse_left_claims(job, api)
    refuse_problems(api, needs_of(job, is_there=True))


def needs_of(job: Job, *, is_there: bool) -> StorageNeeds:
    """The storage that the job's fields describe. `pods` is 0, because no run is known here."""
    return StorageNeeds(
        namespace=job.namespace,
        claim=job.text("claim"),
        is_there=is_there,
        class_name=str(job.fields.get("class_name") or ""),
        access_mode=str(job.fields.get("access_mode") or ""),
        size=str(job.fields.get("size") or ""),
        pods=0,
    )


def refuse_problems(api: Api, needs: StorageNeeds) -> None:
    """Check the storage, and print the notes.

    Raises:
        TaskError: the cluster cannot give the pods their volume.
    """
    found = storage_findings(api, needs)
    for note in found.notes:
        say(note)
    if found.problems:
        raise TaskError("\n".join(found.problems))
