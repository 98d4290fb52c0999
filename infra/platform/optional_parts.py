"""Makes the parts of a platform that depend on the settings, such as GPU Operator and queues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from infra.controllers import CONTROLLERS
from infra.deliveries.kind import Pull
from infra.kube_command import Connection
from infra.objects import Manifest
from infra.platform.cluster import Cluster
from infra.platform.controllers import Controller, ControllerArgs
from infra.platform.gpu_operator import OWN_NAMESPACE as GPU_OPERATOR
from infra.platform.gpu_operator import GpuOperator
from infra.platform.gpu_operator_args import gpu_operator_args
from infra.platform.guards import TaskPods, TaskPodsArgs
from infra.platform.in_cluster import ProgramArgs
from infra.platform.kubectl import Kubectl
from infra.platform.lost_nodes import LostNodes
from infra.platform.monitoring import Monitoring, MonitoringArgs
from infra.platform.namespace_guard import NamespaceGuard, NamespaceGuardArgs
from infra.platform.node_health import NodeHealth, NodeHealthArgs
from infra.platform.pod_policy import PodPolicy, PodPolicyArgs
from infra.platform.pull_secret import PullSecret, PullSecretArgs
from infra.platform.queues import Queues, QueuesArgs, QueuesSeen
from infra.platform.trainer_image import TrainerImageArgs
from infra.platform.viewers import Viewers, ViewersArgs
from infra.settings import PlatformSettings
from infra.settings.controllers import KUEUE, PROMETHEUS


@dataclass(frozen=True)
class Base:
    """What all parts of a platform need.

    Args:
        settings: the settings of the platform.
        connection: how this stack's programs reach the cluster.
        cluster: the component of the cluster, whose `options` every object in the cluster gets.
    """

    settings: PlatformSettings
    connection: Connection
    cluster: Cluster

    @property
    def owner(self) -> pulumi.Output[str]:
        """Identifies the state of this stack."""
        return self.connection.owner

    def inside(self, *after: pulumi.Resource) -> pulumi.ResourceOptions:
        """Options for a component whose objects are in the cluster, and that waits for `after`."""
        return pulumi.ResourceOptions.merge(
            self.cluster.options, pulumi.ResourceOptions(depends_on=[*after])
        )


def make_gpu_operator(base: Base, kubectl: Kubectl) -> list[pulumi.Resource]:
    """Register the GPU Operator, and the guard of its namespace."""
    settings, cluster = base.settings, base.cluster
    if settings.gpu_operator is None:
        return []
    args = gpu_operator_args(
        settings.gpu_operator, settings, kubectl, base.owner, cluster.generation
    )
    operator = GpuOperator("gpu-operator", args, base.inside(cluster))
    guard = NamespaceGuardArgs(base.connection, GPU_OPERATOR)
    guarded = NamespaceGuard("gpu-operator-namespace-guard", guard, base.inside(operator))
    return [operator, guarded]


def make_namespace_parts(
    base: Base, namespace: pulumi.Resource, image: pulumi.Resource, pull: Pull
) -> list[pulumi.Resource]:
    """Register the role for viewers, the login to the image's registry, and the rules for pods.

    The login waits for the image, so that one with which the push was refused does not replace the
    login of pods that run.
    """
    settings, stack = base.settings, base.settings.stack
    made: list[pulumi.Resource] = []
    if not settings.namespace_settings.exists:  # Otherwise others decide who sees it.
        who = ViewersArgs(settings.namespace, stack, base.owner)
        made.append(Viewers("viewers", who, base.inside(namespace)))
    if pull.docker_config:
        (secret,) = pull.secrets
        login = PullSecretArgs(secret, pull.docker_config, settings.namespace, stack, base.owner)
        made.append(PullSecret("image-pull", login, base.inside(namespace, image)))
    if settings.pod_policy != "none":
        policy = PodPolicyArgs(settings.namespace, stack, base.owner, settings.pod_policy)
        made.append(PodPolicy("pod-policy", policy, base.inside(namespace)))
    return made


def make_controllers(
    base: Base, objects: Mapping[str, Sequence[Manifest]], operator: Sequence[pulumi.Resource]
) -> list[pulumi.Resource]:
    """Register the controllers, one after the other.

    The order matters, because a controller may use the kinds of an earlier one.

    Args:
        base: what all parts of the platform need.
        objects: the objects of the controllers that come by manifests, by the controllers' names.
        operator: the resources of the GPU Operator, which come first. Its container toolkit
            restarts containerd, and with it a k3s, whose API server does not answer meanwhile.
    """
    settings = base.settings
    made: list[pulumi.Resource] = []
    for each in settings.controllers:
        claim = settings.numbers_claim if each.name == PROMETHEUS else None
        listed = objects.get(each.name, ())
        args = ControllerArgs(each, base.connection, settings.stack, listed, claim)
        made.append(
            Controller(
                f"controller-{each.name}", args, base.inside(base.cluster, *operator, *made[-1:])
            )
        )
    return made


def make_monitoring(
    base: Base, authorities: str, after: Sequence[pulumi.Resource]
) -> list[pulumi.Resource]:
    """Register what shows the runs to Prometheus.

    Args:
        base: what all parts of the platform need.
        authorities: name of the ConfigMap with further certificate authorities to trust; empty:
            there is none.
        after: the resources that come before.
    """
    settings = base.settings
    if settings.monitoring == "none":
        return []
    operator = settings.gpu_operator
    args = MonitoringArgs(
        base.connection,
        settings.stack,
        is_brought=settings.monitoring == "install",
        exports_gpus=operator is not None and operator.dcgm_exporter,
        kueue_namespace=CONTROLLERS[KUEUE].namespace if settings.brings_kueue else "",
        alert_webhook=settings.alert_webhook,
        authorities=authorities,
    )
    return [Monitoring("monitoring", args, base.inside(*after))]


def make_queues(
    base: Base, seen: QueuesSeen | None, after: Sequence[pulumi.Resource]
) -> list[pulumi.Resource]:
    """Register the queue of the setting `queues`; `seen` is what the cluster has of queues."""
    settings = base.settings
    if not (settings.queues and seen):
        return []
    args = QueuesArgs(settings.queues, seen, settings.devices.gpus, base.connection, settings.stack)
    return [Queues("queues", args, base.inside(*after))]


def make_programs(
    base: Base,
    image: TrainerImageArgs,
    volume: pulumi.Resource,
    ready: Sequence[pulumi.Resource],
) -> list[pulumi.Resource]:
    """Register the programs that run in the cluster beside the trainings, and TaskPods.

    Args:
        base: what all parts of the platform need.
        image: the image that the programs use.
        volume: the volume that task pods mount.
        ready: all other resources of the platform.
    """
    settings = base.settings
    program = ProgramArgs(
        namespace=settings.namespace,
        image=image.request.plan.reference,
        pull=image.pull,
        stack=settings.stack,
        owner=base.owner,
        demands=settings.demands,
    )
    made: list[pulumi.Resource] = []
    if settings.replaces_lost_nodes:
        # This comes after the image and its login, without which the pod would not start.
        made.append(LostNodes("lost-nodes", program, base.inside(*ready)))
    # TaskPods depends on LostNodes, so `pulumi destroy` deletes TaskPods first. It waits for all
    # pods to end, and LostNodes meanwhile gives up the pods of a lost machine. The pods of a k3s
    # that this stack owns disappear with k3s, whether it answers or not.
    task_pods = TaskPodsArgs(base.connection, True, settings.replaces_lost_nodes)
    made.append(TaskPods("task-pods", task_pods, base.inside(volume, *ready, *made)))
    if settings.node_health != "off":
        operator = settings.gpu_operator
        health = NodeHealthArgs(
            **vars(program),
            cordons=settings.node_health == "cordon",
            # With `nri` there is no such class. Then these pods get no nvidia-smi, because the
            # toolkit's plugin of containerd only serves pods in the operator's namespace.
            runtime_class="nvidia" if operator and operator.regime != "nri" else "",
            has_operator=operator is not None,
        )
        made.append(NodeHealth("node-health", health, base.inside(*ready, *made)))
    return made
