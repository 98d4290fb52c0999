"""The data set on the volume, made by a Job that `up` waits for."""

import pulumi
import pulumi_kubernetes as kubernetes

from infra.manifests.config_map import config_map
from infra.manifests.dataset_job import DATASET, dataset_job
from infra.revisions import Revisions
from infra.run_settings import dataset_only
from infra.runner import Runner
from infra.settings import Settings


class DatasetJob(pulumi.ComponentResource):
    """`download-tiny-shakespeare`: fetches, checks and tokenises the text, once.

    Its configuration holds the data set alone, so that a change of the run leaves it as it is.
    """

    job_name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        settings: Settings,
        names: Revisions,
        runner: Runner,
        depends_on: list[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("disttrain:infra:DatasetJob", name, {}, opts)
        self.config_map = kubernetes.core.v1.ConfigMap(
            f"{name}-config-map",
            **config_map(settings, names.dataset_config, DATASET, dataset_only(settings.run)),
            opts=pulumi.ResourceOptions(parent=self, depends_on=depends_on),
        )
        after: list[pulumi.Resource] = [*depends_on, self.config_map]
        for role, file in (("file", settings.dataset_file), ("ranks", settings.ranks_file)):
            if file is None:
                continue
            after.append(
                runner.copy_file(
                    f"{name}-{role}",
                    file.path,
                    str(file.incoming),
                    pulumi.ResourceOptions(parent=self, depends_on=depends_on),
                )
            )
        self.job = kubernetes.batch.v1.Job(
            f"{name}-job",
            **dataset_job(settings, names.dataset_config),
            opts=pulumi.ResourceOptions(parent=self, depends_on=after),
        )
        self.job_name = self.job.metadata["name"]
        self.register_outputs({"job_name": self.job_name})
