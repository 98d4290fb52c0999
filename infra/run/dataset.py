"""Makes the data set on the volume, with a Job for which `pulumi up` waits."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pulumi

from infra.dependencies import dependencies
from infra.kube_command import Connection, kube_command
from infra.objects import kubernetes_object
from infra.run.dataset_hook import name_is_free_before_creation, progress_while_made
from infra.run.dataset_job import DatasetJobArgs, dataset_job
from infra.workloads.pod import of_commands

LOWEST_UPLOAD_BYTES_PER_SECOND = 200_000


@dataclass(frozen=True)
class Upload:
    """A file that is copied from this machine to the volume.

    Args:
        source: the path on this machine.
        target: the path below the volume's root.
        sha256: the checksum of the content.
        size: the number of bytes.
    """

    source: str
    target: str
    sha256: str
    size: int


@dataclass(frozen=True)
class DatasetArgs:
    """What the data set needs.

    Args:
        job: what its Job is made of.
        connection: how programs reach the cluster.
        uploads: files that go to the volume first.
        dataset: the section `dataset` of the run's configuration.
    """

    job: DatasetJobArgs
    connection: Connection
    uploads: tuple[Upload, ...]
    dataset: Mapping[str, Any]


class DatasetJob(pulumi.ComponentResource):
    """The Job `download-<name>`, which downloads, checks and tokenises the text once.

    Its configuration contains only the data set. So a change of the run does not make the Job
    again.
    """

    def __init__(
        self, name: str, args: DatasetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:DatasetJob", name, {}, opts)
        after, parts = dependencies(opts), args.job.parts
        if args.uploads:
            size = sum(upload.size for upload in args.uploads)
            after.append(
                kube_command(
                    f"{name}-upload",
                    "upload",
                    args.connection,
                    {
                        "claim": parts.claim,
                        "image": parts.image,
                        "uid": parts.user,
                        "placement": {**args.job.placement.of_tasks, **of_commands(parts)},
                        "files": [asdict(upload) for upload in args.uploads],
                    },
                    pulumi.ResourceOptions(parent=self, depends_on=[*after]),
                    limit_seconds=600 + size // LOWEST_UPLOAD_BYTES_PER_SECOND,
                )
            )
        job = args.job
        progress = progress_while_made(
            f"{name}-progress", job.job, args.connection, job.timeout_seconds
        )
        free = name_is_free_before_creation(
            f"{name}-name", args.connection, parts.claim, args.dataset
        )
        kubernetes_object(
            f"{name}-job",
            dataset_job(job),
            pulumi.ResourceOptions(
                parent=self,
                depends_on=after,
                hooks=pulumi.ResourceHookBinding(before_create=[free, progress]),
            ),
        )
        self.register_outputs({})
