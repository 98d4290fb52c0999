"""Task `free-volume`: frees the stack's PersistentVolume for a new claim."""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.job import Job
from infra.kube.objects import label, part
from infra.kube.say import say
from infra.kube.volumes.left_claims import refuse_left_claims


def create(job: Job, api: Api) -> None:
    """Free the job's `volume` if it is ours and its claim is gone.

    A volume stays reserved for the uid of the claim to which it was bound. If somebody deletes the
    namespace, the next claim of the same name has another uid. Without this task it would stay
    Pending.
    """
    refuse_left_claims(job, api, never_kept=True)
    volume = job.text("volume")
    path = f"/api/v1/persistentvolumes/{volume}"
    item = api.get(path)
    if item is None or part(item, "status").get("phase") != "Released":
        return
    if label(item, names.OWNER_LABEL) == job.owner:
        api.patch(path, {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}})
        say(f"volume {volume} is free for its next claim")
