"""Reads what the owner of a cluster may demand of every pod: labels, annotations and a user."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.names import QUEUE_LABEL, QUEUE_PRIORITY_LABEL, TRAINER_UID
from infra.settings.pod_labels import check_labels, read_texts
from infra.settings.reader import Reader

_OF_WORKLOADS = {
    QUEUE_LABEL: "queue",
    QUEUE_PRIORITY_LABEL: "queuePriority",
    "scheduling.volcano.sh/queue-name": "--path topologyOptions.queue",
}
"""The setting with the same meaning as a label or annotation, for `pulumi config set`."""


@dataclass(frozen=True)
class PodDemands:
    """What all pods have: those of a run, and those of a platform's programs in the cluster.

    Args:
        annotations: the user's own annotations.
        labels: the user's own labels.
        user: the user and the group as which the pods run.
    """

    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    user: int = TRAINER_UID


def read_demands(reader: Reader) -> PodDemands:
    """Read the labels, annotations and user of all pods. `reader` collects the problems."""
    return PodDemands(
        annotations=_annotations(reader),
        labels=_labels(reader),
        user=reader.integer("podUser", at_least=1, at_most=2**31 - 1),
    )


def check_user(reader: Reader, demands: PodDemands, *, on_k3s: bool) -> None:
    """Refuse another user than the trainer's on a k3s, whose data folder belongs to that one.

    Args:
        reader: collects the problems that are found.
        demands: what all pods of the stack have.
        on_k3s: whether the platform's cluster is a k3s (`cluster: k3s`).
    """
    if on_k3s and demands.user != TRAINER_UID and reader.are_right("cluster", "podUser"):
        reader.problem(
            "podUser",
            demands.user,
            "the platform's cluster is a k3s (cluster: k3s), where the data belongs to user "
            f"{TRAINER_UID} and no other one may write it",
            "Remove it: `pulumi config rm podUser`",
        )


def _annotations(reader: Reader) -> dict[str, str]:
    annotations = read_texts(reader, "podAnnotations", reader.mapping("podAnnotations"))
    check_labels(reader, "podAnnotations", annotations, values_too=False)
    _refuse_labels_of_workloads(reader, "podAnnotations", annotations)
    _refuse_secrets(reader, "podAnnotations", annotations)
    return annotations


def _labels(reader: Reader) -> dict[str, str]:
    labels = read_texts(reader, "podLabels", reader.mapping("podLabels"))
    check_labels(reader, "podLabels", labels)
    _refuse_labels_of_workloads(reader, "podLabels", labels)
    _refuse_secrets(reader, "podLabels", labels)
    for name, value in labels.items():
        if name.startswith(("app.kubernetes.io/", "disttrain.dev/")):
            reason = "the program finds its pods by the labels that begin so"
            reader.problem(f"podLabels.{name}", value, reason, "Use a label of another prefix")
    return labels


def _refuse_secrets(reader: Reader, key: str, given: Mapping[str, str]) -> None:
    """Refuse annotations or labels with an encrypted value, which the pods show to everybody."""
    if given:
        reader.refuse_encrypted(
            key,
            "everybody who may see the pods would see it there",
            f"Nothing in {key} can be secret: remove all of it (`pulumi config rm {key}`), and set "
            "it again without --secret",
        )


def _refuse_labels_of_workloads(reader: Reader, key: str, given: Mapping[str, str]) -> None:
    """Note a problem for each label or annotation in `given` that belongs on the workload.

    Users of Kueue and of Volcano know these from their own manifests. On the pods alone they have
    no effect, or they hold back each pod separately, and the run is not in the queue that they
    name.

    Args:
        reader: collects the problems that are found.
        key: the setting that holds `given`.
        given: labels or annotations for the pods.
    """
    for name in _OF_WORKLOADS.keys() & given.keys():
        value, setting = given[name], _OF_WORKLOADS[name]
        reader.problem(
            f"{key}.{name}",
            value,
            "of a pod it is not read, or it holds back that pod alone, and the run as a whole "
            "would not be in that queue",
            f"Set it for the run: `pulumi config set {setting} {value}`, and remove it here",
        )
