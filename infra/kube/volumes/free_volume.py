"""Task `free-volume`: frees our own PersistentVolume for the claim that comes next."""

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.job import Job
from infra.kube.objects import label, part
from infra.kube.say import say
from infra.kube.volumes.left_claims import refuse_left_claims


def create(job: Job, api: Api) -> None:
    """Free the volume `volume` of ours if its claim went away.

    A volume waits for the claim that it was bound to, by that claim's uid. The claim of a namespace
    that was deleted by hand comes back with another uid, and would stay Pending.
    """
    refuse_left_claims(job, api)
    volume = job.text("volume")
    path = f"/api/v1/persistentvolumes/{volume}"
    item = api.get(path)
    if item is None or part(item, "status").get("phase") != "Released":
        return
    if label(item, names.OWNER_LABEL) == job.owner:
        api.patch(path, {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}})
        say(f"volume {volume} is free for its next claim")


def delete(job: Job, api: Api) -> None:
    """Nothing of this stays behind."""
