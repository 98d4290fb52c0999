"""Finds out on which nodes a volume can be used.

A disk of one zone, or of one machine, cannot be used elsewhere.

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
class LimitedVolume:
    """A volume of a pod that cannot be used on every node, and the nodes where it can.

    Args:
        what: the volume, such as `the volume NAME of the claim NAME`, for messages.
        terms: node selector terms, in the form of Kubernetes. A node has to match all expressions
            of at least one term.
    """

    what: str
    terms: Sequence[Json]

    def reaches(self, node: Json) -> bool:
        """Whether the volume can be used on this node."""
        return any(_matches(term, node) for term in self.terms)

    @property
    def words(self) -> str:
        """The terms as text, for messages."""
        return " or ".join(
            " and ".join(map(_expression_words, _expressions(term))) for term in self.terms
        )

    @property
    def keys(self) -> list[str]:
        """The keys of the terms (labels or fields of nodes), each once."""
        found = (str(each["key"]) for term in self.terms for each in _expressions(term))
        return list(dict.fromkeys(found))


def limited_volumes(
    api: Api, namespace: str, spec: Json, class_name: str, found: Findings
) -> list[LimitedVolume]:
    """The volumes of a pod that cannot be used on every node.

    Args:
        api: the cluster.
        namespace: the namespace of the pod.
        spec: the spec of the pod.
        class_name: the storage class of a claim of the pod that does not exist yet; empty: none.
        found: each claim, volume or class that these credentials may not read is noted in it.
    """
    volumes: list[LimitedVolume] = []
    for volume in parts(spec, "volumes"):
        claim = str(part(volume, "persistentVolumeClaim").get("claimName") or "")
        if not claim:
            continue
        item = object_at(api, f"{CLAIMS.format(namespace)}/{claim}")
        if item == "unseen":
            found.unseen(f"on which nodes the volume of the claim {claim} can be used")
            continue
        limited = _of_claim(api, claim, item, found) if item else _of_class(api, class_name, found)
        volumes += [limited] if limited else []
    return volumes


def _of_claim(api: Api, claim: str, item: Json, found: Findings) -> LimitedVolume | None:
    """Where the claim's volume can be used; None: everywhere, or it is not known.

    If the claim has no volume yet, its storage class decides.
    """
    spec = part(item, "spec")
    if not spec.get("volumeName"):
        return _of_class(api, str(spec.get("storageClassName") or ""), found)
    volume = object_at(api, f"{VOLUMES}/{spec['volumeName']}")
    if volume == "unseen":
        found.unseen(f"on which nodes the volume of the claim {claim} can be used")
    if not isinstance(volume, dict):
        return None
    terms = parts(part(volume, "spec", "nodeAffinity", "required"), "nodeSelectorTerms")
    what = f"the volume {name_of(volume)} of the claim {claim}"
    return LimitedVolume(what, terms) if terms else None


def _of_class(api: Api, name: str, found: Findings) -> LimitedVolume | None:
    """Where a volume of the storage class can be used; None: everywhere, or it is not known."""
    item = object_at(api, f"{CLASSES}/{name}") if name else None
    if item == "unseen":
        found.unseen(f"on which nodes a volume of the storage class {name} can be used")
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
    return LimitedVolume(f"a volume of the storage class {name}", terms) if terms else None


def _expressions(term: Json) -> list[Json]:
    return [*parts(term, "matchExpressions"), *parts(term, "matchFields")]


def _matches(term: Json, node: Json) -> bool:
    """Whether a node matches a term. As in Kubernetes, an empty term matches no node."""
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
    except ValueError:  # The label is not a number.
        return False


def _number(value: object) -> int:
    return int(str(value))


def _expression_words(expression: Json) -> str:
    values = ", ".join(cast(list[str], expression.get("values") or []))
    return " ".join(filter(None, (str(expression["key"]), str(expression["operator"]), values)))
