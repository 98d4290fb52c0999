"""The Job that makes the data set. Pure."""

from typing import Any

from infra.labels import REVISION_LABEL, content_hash, labels, metadata
from infra.manifests.names import DATASET_JOB
from infra.manifests.pod import pod_spec, trust
from infra.manifests.ranks import with_ranks
from infra.proxy import ca_config_map_name
from infra.settings import Settings

DATASET = "dataset"


def dataset_revision(settings: Settings, config_map: str) -> str:
    """Changes with the image and the settings of the data set; the same in every stack."""
    storage = settings.storage
    volume = [str(storage.data_root), storage.size]
    return content_hash({"pod": _pod(settings, config_map), "volume": volume})


def dataset_job(settings: Settings, config_map: str) -> dict[str, Any]:
    """Waited for by `up`; one that has failed is made anew by the next `up`.

    `prepare` itself tries a download several times, so the Job does not.
    """
    limit = settings.limits.dataset_timeout_seconds
    revision = dataset_revision(settings, config_map)
    return {
        "metadata": metadata(
            DATASET_JOB,
            settings.namespace,
            DATASET,
            settings.stack,
            revision,
            {
                "pulumi.com/replaceUnready": "true",
                "pulumi.com/timeoutSeconds": str(limit),
            },
        ),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": limit,
            "template": {
                "metadata": {"labels": {**labels(DATASET), REVISION_LABEL: revision}},
                "spec": _pod(settings, config_map),
            },
        },
    }


def _pod(settings: Settings, config_map: str) -> dict[str, Any]:
    pod = pod_spec(settings.image.plan.reference, config_map, ["prepare"])
    if settings.proxy.ca_bundle:
        pod = trust(pod, ca_config_map_name(settings.proxy.ca_bundle))
    return {**with_ranks(pod, settings), "restartPolicy": "Never"}
