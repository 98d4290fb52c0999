"""On which nodes a volume can be used: a disk of one zone, or of one machine, cannot be elsewhere.

https://kubernetes.io/docs/concepts/storage/persistent-volumes/#node-affinity
https://kubernetes.io/docs/concepts/storage/storage-classes/#allowed-topologies
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, object_at
from infra.kube.objects import Json, name_of, part, parts
from infra.kube.paths import CLAIMS, CLASSES, VOLUMES


@dataclass(frozen=True)
class VolumePlace:
    """Where a pod's volume can be used.

    Args:
        what: the volume, for people.
        terms: Kubernetes' own; a node has to match all expressions of one of them.
    """

    what: str
    terms: Sequence[Json]

    def reaches(self, node: Json) -> bool:
        """Whether it can be used on this node."""
        return any(_matches(term, node) for term in self.terms)

    @property
    def words(self) -> str:
        """The terms, for people."""
        return " or ".join(
            " and ".join(map(_expression_words, _expressions(term))) for term in self.terms
        )

    @property
    def keys(self) -> list[str]:
        """The labels that decide, each once."""
        found = (str(each["key"]) for term in self.terms for each in _expressions(term))
        return list(dict.fromkeys(found))


def places_of(
    api: Api, namespace: str, spec: Json, class_name: str, found: Findings
) -> list[VolumePlace]:
    """The places of a pod's volumes that are not to be had everywhere.

    Args:
        api: of the cluster.
        namespace: of the pod.
        spec: of the pod.
        class_name: storage class of its claim, where that is made later; empty: it has none.
        found: is told what may not be seen.
    """
    places: list[VolumePlace] = []
    for volume in parts(spec, "volumes"):
        claim = str(part(volume, "persistentVolumeClaim").get("claimName") or "")
        if not claim:
            continue
        item = object_at(api, f"{CLAIMS.format(namespace)}/{claim}")
        if item == "unseen":
            found.unseen(f"on which nodes the volume of the claim {claim} can be used")
            continue
        place = _of_claim(api, claim, item, found) if item else _of_class(api, class_name)
        places += [place] if place else []
    return places


def _of_claim(api: Api, claim: str, item: Json, found: Findings) -> VolumePlace | None:
    """The place of the claim's volume, or, where it has none yet, of its class."""
    spec = part(item, "spec")
    if not spec.get("volumeName"):
        return _of_class(api, str(spec.get("storageClassName") or ""))
    volume = object_at(api, f"{VOLUMES}/{spec['volumeName']}")
    if volume == "unseen":
        found.unseen(f"on which nodes the volume of the claim {claim} can be used")
    if not isinstance(volume, dict):
        return None
    terms = parts(part(volume, "spec", "nodeAffinity", "required"), "nodeSelectorTerms")
    what = f"the volume {name_of(volume)} of the claim {claim}"
    return VolumePlace(what, terms) if terms else None


def _of_class(api: Api, name: str) -> VolumePlace | None:
    item = object_at(api, f"{CLASSES}/{name}") if name else None
    if not isinstance(item, dict):
        return None
    terms = [
        {
            "matchExpressions": [
                {"key": each["key"], "operator": "In", "values": each["values"]}
                for each in parts(term, "matchLabelExpressions")
            ]
        }
        for term in parts(item, "allowedTopologies")
    ]
    return VolumePlace(f"a volume of the storage class {name}", terms) if terms else None


def _expressions(term: Json) -> list[Json]:
    return [*parts(term, "matchExpressions"), *parts(term, "matchFields")]


def _matches(term: Json, node: Json) -> bool:
    """An empty term matches no node, as Kubernetes has it."""
    labels = part(node, "metadata", "labels")
    fields = {"metadata.name": name_of(node)}
    return bool(_expressions(term)) and all(
        _holds(each, known)
        for kind, known in (("matchExpressions", labels), ("matchFields", fields))
        for each in parts(term, kind)
    )


def _holds(expression: Json, known: Mapping[str, object]) -> bool:
    value = known.get(str(expression["key"]))
    values = cast(list[str], expression.get("values") or [])
    operators: dict[str, Callable[[], bool]] = {
        "In": lambda: value in values,
        "NotIn": lambda: value not in values,
        "Exists": lambda: value is not None,
        "DoesNotExist": lambda: value is None,
        "Gt": lambda: _number(value) > int(values[0]),
        "Lt": lambda: _number(value) < int(values[0]),
    }
    try:
        return operators[str(expression["operator"])]()
    except ValueError:  # the label is no number
        return False


def _number(value: object) -> int:
    return int(str(value))


def _expression_words(expression: Json) -> str:
    values = ", ".join(cast(list[str], expression.get("values") or []))
    return " ".join(filter(None, (str(expression["key"]), str(expression["operator"]), values)))
