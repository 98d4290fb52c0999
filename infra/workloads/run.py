"""A run as a value: everything that decides what the run's pods are.

The settings and the platform's facts are combined once (infra/run/run_value.py). The kinds of
workload then render their objects from this value.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from infra.labels import (
    COMPONENT_LABEL,
    OWNER_LABEL,
    REVISION_LABEL,
    WORKLOAD_LABEL,
    content_hash,
    metadata,
)
from infra.names import TRAINING
from infra.networks.profile import NetworkProfile
from infra.objects import Manifest
from infra.pod_metadata import NO_MESH_LABELS, pod_annotations, with_own
from infra.settings.pods_neighbours import NeighbourSettings
from infra.workloads.kind import WorkloadKind
from infra.workloads.pod import PodParts, of_commands, training_pod
from infra.world import World


@dataclass(frozen=True)
class Placement:
    """Where pods may run, and the labels and annotations that the user gives them.

    Args:
        node_selector: the labels that a node must have.
        tolerations: tolerations as in a pod's spec.
        priority_class: the name of a PriorityClass; empty for the cluster's default.
        annotations: the user's own annotations of the pods (`podAnnotations`).
        labels: the user's own labels of the pods (`podLabels`).
        neighbours: whether the pods are to be near each other or apart.
        runtime_class: the name of a RuntimeClass; empty for the default one.
        queue_levels: the levels of the topology of the run's queue, if the platform has made one.
    """

    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]
    priority_class: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    neighbours: NeighbourSettings
    runtime_class: str
    queue_levels: tuple[str, ...]

    @property
    def is_queues_choice(self) -> bool:
        """Whether Kueue, and not Kubernetes' scheduler, chooses the machine of each pod."""
        return bool(self.queue_levels) or bool(self.required_level)

    @property
    def required_level(self) -> str:
        """The node label of which all pods must share one value; empty if that is not required."""
        return self.neighbours.label if self.neighbours.placement == "one-place" else ""

    @property
    def pod_labels(self) -> dict[str, str]:
        """The labels of the run's pods, without those by which disttrain finds them."""
        return with_own(NO_MESH_LABELS, self.labels)

    @property
    def pod_annotations(self) -> dict[str, str]:
        """The annotations of the run's pods for other programs, and the user's own."""
        return pod_annotations(self.annotations, self.node_selector)

    @property
    def of_tasks(self) -> Manifest:
        """Fields of the pods that commands start: where they run, their labels and annotations.

        `infra.kube.files.task_pod` builds the pod from these fields.
        """
        metadata = {"labels": dict(self.labels), "annotations": dict(self.annotations)}
        given = {name: value for name, value in metadata.items() if value}
        return {**self.nodes, **({"metadata": given} if given else {})}

    @property
    def nodes(self) -> Manifest:
        """The fields of a pod's spec that decide on which nodes it may run, and when."""
        fields = {
            "nodeSelector": dict(self.node_selector),
            "tolerations": [dict(toleration) for toleration in self.tolerations],
            "priorityClassName": self.priority_class,
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True)
class Resources:
    """Requests of CPU and memory for one rank, and the size of the pod's shared memory (/dev/shm).

    All three are Kubernetes quantities, such as `500m` or `2Gi`.
    """

    cpu_per_rank: str
    memory_per_rank: str
    shm_size: str


@dataclass(frozen=True)
class Run:
    """A run of the trainer on a platform.

    Args:
        name: the name of the run's folder below `/data/runs`.
        namespace: the Kubernetes namespace.
        instance: the text at the end of the names of the run's objects; empty if they have their
            usual names.
        kind: the kind of workload that creates the pods.
        kind_options: an instance of the kind's options dataclass.
        world: the numbers of pods and ranks.
        parts: image, mounts and variables that the run's pods share with the data set's pod.
        resources: the requests of the training pods.
        environment: the user's own variables for training pods.
        network: the network profile.
        placement: node selector, tolerations and the like.
        key_secret: the name of the Secret whose field `key` the pods use to recognise each other.
        pod_secrets: the name of the Secret whose fields become variables; empty if there is none.
        grace_seconds: the time that a pod has to save when it is ended, and to wait for its mirror.
        metrics_port: the port on which each pod offers its metrics; 0 if it offers none.
        platform_identity: the facts of the platform that need new pods when they change: the
            volume, and the proxies without their passwords.
        stack: the name of the stack, for people who look at the objects.
        owner: the identity of the stack's state, which is the value of a label. It is not known
            before the first `up`.
        queue: the labels by which Kueue puts the workload into a queue; empty if it is in no queue.
        program_volume: the volume with the files of the user's own program; None if there are none.
        program_image: the image of that program; empty if it runs in the trainer image.
        run_dir: the path of the run's folder in the pods.
        ttl_seconds: the time after its end when the controller removes the workload; None if the
            workload stays.
    """

    name: str
    namespace: str
    instance: str
    kind: WorkloadKind
    kind_options: Any
    world: World
    parts: PodParts
    resources: Resources
    environment: Mapping[str, str]
    network: NetworkProfile
    placement: Placement
    key_secret: str
    pod_secrets: str
    grace_seconds: int
    metrics_port: int
    platform_identity: Mapping[str, Any]
    stack: str
    owner: Any
    queue: Mapping[str, str]
    program_volume: Manifest | None
    program_image: str
    run_dir: str
    ttl_seconds: int | None

    @property
    def ttl(self) -> Manifest:
        """The field by which the workload is removed some time after its end; empty if it stays."""
        seconds = self.ttl_seconds
        return {} if seconds is None else {"ttlSecondsAfterFinished": seconds}

    def object_name(self, usual: str) -> str:
        """The name of one of the run's objects, made of its usual name and `instance`."""
        return f"{usual}-{self.instance}" if self.instance else usual

    @property
    def task_placement(self) -> Manifest:
        """What the pods that commands start on the run's data have in common with the run's pods.

        These pods may run on the same nodes as the training pods, and have the user's own labels
        and annotations.
        """
        return {**self.placement.of_tasks, **of_commands(self.parts)}

    @property
    def workload_name(self) -> str:
        """The name of the Job, StatefulSet or other object that the kind makes."""
        return self.object_name(self.kind.object_name)

    @cached_property
    def selector(self) -> dict[str, str]:
        """Labels that all pods of this workload have, in every revision, and no other pods."""
        return {
            "app.kubernetes.io/name": "disttrain",
            COMPONENT_LABEL: TRAINING,
            WORKLOAD_LABEL: self.workload_name,
        }

    @cached_property
    def revision(self) -> str:
        """A hash that changes with everything that the pods are made of."""
        return content_hash(
            {
                "pod": self._pod,
                "topology": [self.kind.name, self.world.pods],
                "platform": dict(self.platform_identity),
                **({"options": asdict(self.kind_options)} if fields(self.kind_options) else {}),
                # Kueue does not allow a run that was admitted to move to another queue.
                **({"queue": dict(self.queue)} if self.queue else {}),
                # If the controller does not allow a change of this field, a different time needs
                # a new workload.
                **(self.ttl if "spec" in self.kind.replace_on else {}),
            }
        )

    @cached_property
    def template(self) -> Manifest:
        """The pod template, with the labels of its revision and its owner."""
        metadata = self._pod["metadata"]
        labels = {**metadata["labels"], REVISION_LABEL: self.revision, OWNER_LABEL: self.owner}
        return {**self._pod, "metadata": {**metadata, "labels": labels}}

    def metadata(self, name: str, annotations: Mapping[str, str] | None = None) -> Manifest:
        """The metadata of one of the objects that the kind renders."""
        return metadata(
            name,
            self.namespace,
            TRAINING,
            stack=self.stack,
            owner=self.owner,
            revision=self.revision,
            annotations=annotations,
        )

    @cached_property
    def _pod(self) -> Manifest:
        return training_pod(self)
