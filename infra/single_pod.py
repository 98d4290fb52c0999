"""Topology single-pod: all ranks in the one pod of a Job."""

import pulumi
import pulumi_kubernetes as kubernetes

from infra.kubectl import Kubectl
from infra.manifests.names import SINGLE_POD_JOB
from infra.manifests.single_pod import single_pod_job
from infra.revisions import Revisions
from infra.settings import Settings
from infra.training import Training, Workload


class SinglePodTraining(Training):
    """The Job `train-singlepod`."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        names: Revisions,
        kubectl: Kubectl,
        depends_on: list[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("disttrain:infra:SinglePodTraining", name, {}, opts)
        self.job = kubernetes.batch.v1.Job(
            f"{name}-job",
            **single_pod_job(settings, names.run_config),
            opts=pulumi.ResourceOptions(parent=self, depends_on=depends_on),
        )
        uid = self.job.metadata["uid"]
        workload = Workload("Job", SINGLE_POD_JOB, names.training)
        self.wait_until_stepped(name, settings, kubectl, workload, self.job, uid)
        self.workload_name = self.job.metadata["name"]
        self.register_outputs({"workload_name": self.workload_name})
