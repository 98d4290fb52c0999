"""Decides which fields the pod has that reads on the volume how a run ended (gone.py). Pure."""

from dataclasses import dataclass
from typing import Any

from infra.kube.objects import Json, part

PLACEMENT_KEYS = ("nodeSelector", "tolerations", "priorityClassName", "imagePullSecrets")
GROUP_KEYS = ("fsGroup", "fsGroupChangePolicy")
USER_KEYS = ("runAsUser", "runAsGroup")
LIMIT_KEYS = ("cpu", "memory")


@dataclass(frozen=True)
class Asker:
    """What the pod gets from the stack that asks.

    It comes from the stack's settings or outputs, and not from a record, which other people may
    have changed.

    Args:
        image: the trainer image of the stack's platform. Any image with Python can read the volume.
        claim: the claim of the stack's platform.
        placement: the placement of pods of the stack (its output `podPlacement`).
    """

    image: str
    claim: str
    placement: Json

    @staticmethod
    def from_json(given: dict[str, Any]) -> "Asker | None":
        """Read a JSON object with these fields; None for an empty object."""
        if not given:
            return None
        return Asker(str(given["image"]), str(given["claim"]), dict(given["placement"]))


def pod_fields(recorded: Json, own: Json) -> Json:
    """The field `placement` of the pod.

    Args:
        recorded: the placement in the record of the run.
        own: the placement of pods of the stack that asks (its output `podPlacement`).
    """
    placement, demands = harmless(recorded), demanded(own)
    security = {**part(placement, "securityContext"), **part(demands, "securityContext")}
    return {**placement, **demands, **({"securityContext": security} if security else {})}


def harmless(placement: Json) -> Json:
    """The fields of a pod's spec that may be taken from a record.

    A record is a ConfigMap. Whoever may change a ConfigMap must not be able to choose the rights of
    a pod that other people start. Labels and annotations are rights, too: an annotation can give a
    pod a role in a cloud, and a label can open it a network.
    """
    found = {key: placement[key] for key in PLACEMENT_KEYS if key in placement}
    groups = _of(part(placement, "securityContext"), GROUP_KEYS)
    limits = _of(part(placement, "resources", "limits"), LIMIT_KEYS)
    return {
        **found,
        **({"securityContext": groups} if groups else {}),
        **({"resources": {"limits": limits}} if limits else {}),
    }


def demanded(own: Json) -> Json:
    """The fields that a cluster may demand of every pod: its user, its labels and annotations.

    Args:
        own: the placement of pods of a stack, from its settings or its outputs and not from a
            record, which other people may have changed.
    """
    user = _of(part(own, "securityContext"), USER_KEYS)
    metadata = part(own, "metadata")
    return {
        **({"metadata": metadata} if metadata else {}),
        **({"securityContext": user} if user else {}),
    }


def _of(fields: Json, keys: tuple[str, ...]) -> Json:
    return {key: fields[key] for key in keys if key in fields}
