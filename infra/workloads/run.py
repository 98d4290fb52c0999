"""A run as a value: everything that decides what its pods are, worked out once."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
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
from infra.settings.pods_neighbours import LEFT_TO_KUBERNETES, NeighbourSettings
from infra.workloads.kind import WorkloadKind
from infra.workloads.pod import PodParts, of_commands, training_pod
from infra.world import World


@dataclass(frozen=True)
class Placement:
    """Where pods may run, and what marks them for the cluster's own rules.

    Tolerations are Kubernetes' own objects. `runtime_class` is empty for the default one.
    `queue_levels` are those of the topology of the run's queue, where its platform has made it.
    """

    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: tuple[Mapping[str, Any], ...] = ()
    priority_class: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    neighbours: NeighbourSettings = LEFT_TO_KUBERNETES
    runtime_class: str = ""
    queue_levels: tuple[str, ...] = ()

    @property
    def is_queues_choice(self) -> bool:
        """Whether Kueue, and not Kubernetes' scheduler, chooses the machine of each pod."""
        return bool(self.queue_levels) or bool(self.one_place)

    @property
    def one_place(self) -> str:
        """The label of whose places one has to hold all pods; empty: it is no must."""
        return self.neighbours.label if self.neighbours.placement == "one-place" else ""

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
    """What one rank asks of its node: CPU and memory as Kubernetes writes them, and shared memory
    (/dev/shm) of the pod."""

    cpu_per_rank: str
    memory_per_rank: str
    shm_size: str


@dataclass(frozen=True)
class Run:
    """A run of the trainer on a platform.

    Args:
        name: folder of the run below `/data/runs`.
        namespace: Kubernetes namespace.
        instance: ends the names of the run's objects; empty: they have their usual names.
        kind: how the pods come about.
        kind_options: an instance of the kind's options dataclass.
        world: pods and ranks.
        parts: image, mounts and variables that the run's pods share with the data set's pod.
        resources: requests of the training pods.
        environment: the user's own variables for training pods.
        network: the network profile.
        placement: node selector, tolerations and the like.
        key_secret: name of the Secret whose field `key` the pods recognise each other by.
        pod_secrets: name of the Secret whose fields become variables; empty: there is none.
        grace_seconds: time that a pod has to save when it is ended.
        metrics_port: where each pod offers its metrics; 0: nowhere.
        platform_identity: what of the platform makes other pods when it changes: the volume, and
            the proxies without their passwords.
        stack: name of the stack, for people who look at the objects.
        owner: identifies the stack's state; the value of a label, known once the stack has it.
        queue: labels of the workload by which Kueue takes it up; empty: it stands in no queue.
        program_volume: the volume with the files of the user's own program; None: there are none.
        program_image: the image of that program; empty: it runs in the trainer image.
        run_dir: its folder, as pods see it.
        ttl_seconds: so long after its end the controller removes the workload; None: it stays.
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
    queue: Mapping[str, str] = field(default_factory=dict[str, str])
    program_volume: Manifest | None = None
    program_image: str = ""
    run_dir: str = ""
    ttl_seconds: int | None = None

    @property
    def ttl(self) -> Manifest:
        """The field by which a workload is removed some time after its end, where it is to be."""
        seconds = self.ttl_seconds
        return {} if seconds is None else {"ttlSecondsAfterFinished": seconds}

    def object_name(self, usual: str) -> str:
        """The name of one of the run's objects."""
        return f"{usual}-{self.instance}" if self.instance else usual

    @property
    def task_placement(self) -> Manifest:
        """Where pods of commands on the run's data run: wherever the training pods may."""
        return {**self.placement.nodes, **of_commands(self.parts)}

    @property
    def workload_name(self) -> str:
        """Name of the Job, StatefulSet or whatever the kind makes."""
        return self.object_name(self.kind.object_name)

    @cached_property
    def selector(self) -> dict[str, str]:
        """Labels that exactly the pods of this workload have, in every revision."""
        return {
            "app.kubernetes.io/name": "disttrain",
            COMPONENT_LABEL: TRAINING,
            WORKLOAD_LABEL: self.workload_name,
        }

    @cached_property
    def revision(self) -> str:
        """Changes with everything that the pods are made of."""
        return content_hash(
            {
                "pod": self._pod,
                "topology": [self.kind.name, self.world.pods],
                "platform": dict(self.platform_identity),
                **({"options": asdict(self.kind_options)} if fields(self.kind_options) else {}),
                # Kueue lets nobody move a run that has its place to another queue.
                **({"queue": dict(self.queue)} if self.queue else {}),
                # Where the controller lets nobody change it, another time is another workload.
                **(self.ttl if "spec" in self.kind.replace_on else {}),
            }
        )

    @cached_property
    def template(self) -> Manifest:
        """The pod template, with the labels by which its pods are found."""
        metadata = self._pod["metadata"]
        labels = {**metadata["labels"], REVISION_LABEL: self.revision, OWNER_LABEL: self.owner}
        return {**self._pod, "metadata": {**metadata, "labels": labels}}

    def metadata(self, name: str, annotations: Mapping[str, str] | None = None) -> Manifest:
        """Metadata of one of the workload's objects."""
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
