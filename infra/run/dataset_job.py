"""The Job that makes the data set, as a plain manifest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.labels import OWNER_LABEL, REVISION_LABEL, content_hash, labels, metadata
from infra.names import DATASET
from infra.objects import Manifest
from infra.workloads.pod import PodParts, pod_spec


@dataclass(frozen=True)
class DatasetJobArgs:
    """What the Job is made of.

    Args:
        job: name of the object.
        namespace: Kubernetes namespace.
        stack: name of the stack.
        owner: identifies the stack's state.
        parts: image, mounts and variables of the pod.
        nodes: fields of the pod's spec that say where it may run, as the training pods have them.
        platform_identity: what of the platform makes another data set when it changes.
        timeout_seconds: longest time until the data set is there.
    """

    job: str
    namespace: str
    stack: str
    owner: pulumi.Output[str]
    parts: PodParts
    nodes: Manifest
    platform_identity: Mapping[str, Any]
    timeout_seconds: int


def dataset_job(args: DatasetJobArgs) -> Manifest:
    """`pulumi up` waits for this Job; one that has failed is made anew by the next `up`.

    `prepare` itself tries a download several times, so the Job does not.
    """
    pod = {**pod_spec(args.parts, ["prepare"]), **args.nodes, "restartPolicy": "Never"}
    revision = content_hash({"pod": pod, "platform": dict(args.platform_identity)})
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
                    "labels": {
                        **labels(DATASET),
                        REVISION_LABEL: revision,
                        OWNER_LABEL: args.owner,
                    }
                },
                "spec": pod,
            },
        },
    }
