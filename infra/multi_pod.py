"""Topology multi-pod: the ranks in the pods of a StatefulSet, which meet by name."""

import pulumi
import pulumi_kubernetes as kubernetes

from infra.kubectl import Kubectl
from infra.manifests.multi_pod import headless_service, multi_pod_set
from infra.manifests.names import MULTI_POD_SET
from infra.revisions import Revisions
from infra.settings import Settings
from infra.training import Training, Workload


class MultiPodTraining(Training):
    """The StatefulSet `train-multipod` and its headless Service `train-mp-headless`."""

    service_name: pulumi.Output[str]
    """Name of the headless Service."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        names: Revisions,
        kubectl: Kubectl,
        depends_on: list[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("disttrain:infra:MultiPodTraining", name, {}, opts)
        self.service = kubernetes.core.v1.Service(
            f"{name}-service",
            **headless_service(settings),
            opts=pulumi.ResourceOptions(parent=self, depends_on=depends_on),
        )
        self.stateful_set = kubernetes.apps.v1.StatefulSet(
            f"{name}-stateful-set",
            **multi_pod_set(settings, names.run_config),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[*depends_on, self.service],
                # as a Job's: other pods are another workload, never a half-changed one
                replace_on_changes=["spec.template", "spec.replicas"],
                delete_before_replace=True,
            ),
        )
        uid = self.stateful_set.metadata["uid"]
        workload = Workload("StatefulSet", MULTI_POD_SET, names.training)
        self.wait_until_stepped(name, settings, kubectl, workload, self.stateful_set, uid)
        self.workload_name = self.stateful_set.metadata["name"]
        self.service_name = self.service.metadata["name"]
        self.register_outputs(
            {"workload_name": self.workload_name, "service_name": self.service_name}
        )
