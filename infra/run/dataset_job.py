"""The manifest of the Job that makes the data set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.labels import OWNER_LABEL, REVISION_LABEL, content_hash, labels, metadata
from infra.names import DATASET
from infra.objects import Manifest
from infra.workloads.pod import PodParts, pod_spec
from infra.workloads.run import Placement


@dataclass(frozen=True)
class DatasetJobArgs:
    """What the Job is made of.

    Args:
        job: the name of the Job.
        namespace: the Kubernetes namespace.
        stack: the name of the stack.
        owner: the identity of the stack's state.
        parts: image, mounts and variables of the pod.
        placement: on which nodes the pod may run, and its labels and annotations. They are those of
            the training pods.
        platform_identity: the facts of the platform that make the Job run again when they change.
        timeout_seconds: the longest time until the data set is ready.
    """

    job: str
    namespace: str
    stack: str
    owner: pulumi.Output[str]
    parts: PodParts
    placement: Placement
    platform_identity: Mapping[str, Any]
    timeout_seconds: int


def dataset_job(args: DatasetJobArgs) -> Manifest:
    """The manifest of the Job. `pulumi up` waits for it.

    If the Job has failed, the next `up` makes it again. The Job itself does not try again, because
    `prepare` already tries each download several times.
    """
    spec = {
        **pod_spec(args.parts, ["prepare"]),
        **args.placement.nodes,
        "restartPolicy": "Never",
    }
    annotations = args.placement.pod_annotations
    pod: Manifest = {
        "metadata": {
            "labels": {**args.placement.pod_labels, **labels(DATASET)},
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": spec,
    }
    revision = content_hash({"pod": pod, "platform": dict(args.platform_identity)})
    own_labels = {REVISION_LABEL: revision, OWNER_LABEL: args.owner}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(
            args.job,
            args.namespace,
            DATASET,
            stack=args.stack,
            owner=args.owner,
            revision=revision,
            annotations={
                "pulumi.com/replaceUnready": "true",
                "pulumi.com/timeoutSeconds": str(args.timeout_seconds),
            },
        ),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": args.timeout_seconds,
            "template": {
                "metadata": {
                    **pod["metadata"],
                    "labels": {**pod["metadata"]["labels"], **own_labels},
                },
                "spec": spec,
            },
        },
    }
