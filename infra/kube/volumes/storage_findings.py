"""Checks whether a cluster can give the pods of a stack their volume. It changes nothing."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from infra.kube import names
from infra.kube.api_server.api import Api
from infra.kube.api_server.findings import Findings, listed, object_at, objects_at
from infra.kube.objects import Json, is_ending, name_of, part, parts
from infra.kube.paths import CLAIMS, CLASSES, NODES, VOLUMES
from infra.kube.quantity import amount
from infra.kube.say import first_of
from infra.kube.volumes.left_claims import STORAGE, left_claims, purge_problem
from infra.kube.volumes.limited_volumes import LimitedVolume, limited_volumes
from infra.names import MANY_NODES, ONE_NODE, ONE_POD

DRIVERS = "/apis/storage.k8s.io/v1/csidrivers"
DRIVERS_ON_NODES = "/apis/storage.k8s.io/v1/csinodes"
BY_HAND = "kubernetes.io/no-provisioner"
WAITS = "WaitForFirstConsumer"
NodesFor: TypeAlias = Callable[[Sequence[Json], Sequence[LimitedVolume]], Sequence[Json]]


@dataclass(frozen=True)
class StorageNeeds:
    """The storage that a stack needs.

    Args:
        namespace: the namespace of the claim.
        claim: the name of the claim.
        is_there: whether somebody else has made the claim (`storage: existing-claim`), so that it
            has to exist already.
        class_name: the storage class of a claim that this stack makes; empty: it has none.
        access_mode: the access mode of a claim that this stack makes.
        size: the size of such a claim, such as `50Gi`.
        pods: how many pods of the run write to the volume at one time; 0: no run is known here.
        class_key, size_key: the settings that hold class and size, for messages.
        can_grow: whether a larger size makes an existing claim of this stack larger.
        stack: the name of the stack whose former claims are looked for, because this change would
            delete them; empty: they are not looked for.
        has_data_folder: whether the stack has a command of the data folder with these settings.
        holding: returns those of the given nodes that could hold a pod of the run with the given
            volumes; None: all nodes that are not cordoned.
        reached: the same for the pod that prepares the data set, which asks for less; None: there
            is no such pod.
    """

    namespace: str
    claim: str
    is_there: bool
    class_name: str
    access_mode: str
    size: str
    pods: int
    class_key: str = "storageOptions.className"
    size_key: str = "dataSize"
    can_grow: bool = True
    stack: str = ""
    has_data_folder: bool = True
    holding: NodesFor | None = None
    reached: NodesFor | None = None


def storage_findings(api: Api, needs: StorageNeeds) -> Findings:
    """Check the storage on a cluster. Raises ApiError and UnreachableError."""
    found = Findings()
    if needs.stack:
        mine = f"{STORAGE},{names.STACK_LABEL}={needs.stack}"
        left = left_claims(api, needs.namespace, mine, needs.claim)
        if problem := purge_problem(left, has_data_folder=needs.has_data_folder):
            found.problems.append(problem)
    modes = {needs.access_mode}
    if needs.is_there:
        item = object_at(api, f"{CLAIMS.format(needs.namespace)}/{needs.claim}")
        if item == "unseen":
            found.unseen(f"whether the claim {needs.claim} can be used")
            return found
        modes = _check_claim(api, needs, item, found)
    elif needs.class_name:
        _check_class(api, needs, found)
    if modes and not found.problems:
        _check_nodes(api, needs, modes, found)
    return found


def _check_claim(api: Api, needs: StorageNeeds, item: Json | None, found: Findings) -> set[str]:
    """Check a claim that the stack does not make, and return its access modes.

    Args:
        api: the cluster.
        needs: what the stack needs.
        item: the claim; None: it does not exist.
        found: each finding is added to it.
    """
    key = f"storageOptions.claimName: {needs.claim!r} cannot be used"
    if item is None:
        others = listed(api, CLAIMS.format(needs.namespace))
        there = f"; there is {others}" if others else ""
        found.problems.append(
            f"{key}: namespace {needs.namespace} has no such claim{there}. Set one that is there, "
            "or make it first"
        )
        return set()
    if is_ending(item):
        found.problems.append(
            f"{key}: it is being deleted (deletionTimestamp). Set another claim, or make it again"
        )
        return set()
    phase = str(part(item, "status").get("phase") or "Pending")
    class_name = str(part(item, "spec").get("storageClassName") or "")
    if phase != "Bound":
        class_ = object_at(api, f"{CLASSES}/{class_name}") if class_name else None
        if phase == "Pending" and class_ == "unseen":
            found.unseen(
                f"whether the claim {needs.claim}, which is Pending, is bound when the first pod "
                "uses it"
            )
        elif phase == "Pending" and _binding(class_) == WAITS:
            found.notes.append(_waiting(needs.claim, class_name))
        else:
            found.problems.append(
                f"{key}: it is {phase} and not Bound, so no pod could mount it. "
                f"`kubectl -n {needs.namespace} describe persistentvolumeclaim {needs.claim}` "
                "says what it waits for"
            )
    else:
        _check_volume(api, needs, str(part(item, "spec").get("volumeName") or ""), found)
    modes = set(cast(list[str], part(item, "spec").get("accessModes") or []))
    if not modes & {MANY_NODES, ONE_NODE, ONE_POD}:
        found.problems.append(
            f"{key}: its access mode is {', '.join(sorted(modes))}, and a training writes "
            f"checkpoints. Set a claim with {MANY_NODES}"
        )
    return modes


def _check_volume(api: Api, needs: StorageNeeds, volume: str, found: Findings) -> None:
    item = object_at(api, f"{VOLUMES}/{volume}")
    if item == "unseen":
        found.unseen(f"whether the driver of volume {volume} is installed")
    elif item is not None:
        driver = str(part(item, "spec", "csi").get("driver") or "")
        _check_driver(api, f"storageOptions.claimName: {needs.claim!r}", driver, found)


def _check_class(api: Api, needs: StorageNeeds, found: Findings) -> None:
    key = f"{needs.class_key}: {needs.class_name!r}"
    item = object_at(api, f"{CLASSES}/{needs.class_name}")
    if item == "unseen":
        found.unseen(f"whether there is a storage class {needs.class_name}")
        return
    if item is None:
        others = listed(api, CLASSES) or "none"
        found.problems.append(
            f"{key} cannot be used: the cluster has no such storage class; it has {others}. Set "
            "one of them, or let the driver that brings the class be installed"
        )
        return
    own = object_at(api, f"{CLAIMS.format(needs.namespace)}/{needs.claim}")
    if isinstance(own, dict):
        _check_change(own, needs, found)
        if part(own, "status").get("phase") == "Bound":
            return
    provisioner = str(item.get("provisioner") or "")
    if re.search(r"(^|[.-])csi([.-]|$)", provisioner):
        _check_driver(api, key, provisioner, found)
    elif provisioner == BY_HAND:
        _check_free_volume(api, needs, key, found)
    if _binding(item) == WAITS:
        found.notes.append(_waiting(needs.claim, needs.class_name))
        if needs.access_mode != MANY_NODES:
            _check_first_pod(api, needs, found)


def _check_first_pod(api: Api, needs: StorageNeeds, found: Findings) -> None:
    """Note nodes where the first pod could be placed, and with it the volume, but no training pod.

    The first pod prepares the data set.
    """
    nodes = objects_at(api, NODES)
    if not nodes or not needs.holding or not needs.reached:
        return
    limited = _limited(api, needs)
    roomy = needs.holding(nodes, limited)
    others = [node for node in needs.reached(nodes, limited) if node not in roomy]
    if roomy and others:
        found.notes.append(
            f"the volume of storage class {needs.class_name} is made where its first pod is "
            "placed. That pod prepares the data set and asks for little, so it could be placed on "
            f"{_names(others)}, where no training pod has room. A disk of one zone or of one "
            "node would then keep the training from starting. Set a nodeSelector that leads to "
            f"the nodes of the training ({_names(roomy)}), such as their zone or pool"
        )


def _check_change(own: Json, needs: StorageNeeds, found: Findings) -> None:
    """Check that the settings change nothing of an existing claim that it cannot change.

    A claim can get a larger size, but neither another class nor another access mode.
    """
    spec, capacity = part(own, "spec"), part(own, "status", "capacity")
    modes = ", ".join(cast(list[str], spec.get("accessModes") or []))
    held = f"the claim {needs.claim}, which holds data"
    for key, is_now, wanted in (
        (needs.class_key, str(spec.get("storageClassName") or ""), needs.class_name),
        ("storageOptions.accessMode", modes, needs.access_mode),
    ):
        if is_now != wanted:
            found.problems.append(
                f"{key}: {wanted!r} cannot be used for {held} and has {is_now}, "
                f"because a claim cannot change it. Set {is_now} again, or another namespace for a "
                "claim of its own"
            )
    # The volume may be larger than the claim asks for, because many drivers have a smallest size.
    # The volume may also be smaller, if the driver could not make it larger. Then a size between
    # that of the volume and what the claim asks for takes the growth back, which is allowed.
    volume = str(capacity.get("storage") or "")
    asked = str(part(spec, "resources", "requests").get("storage") or "")
    is_less = bool(asked and needs.size) and amount(needs.size) < amount(asked)
    if is_less and volume and amount(needs.size) <= amount(volume):
        found.problems.append(
            f"{needs.size_key}: {needs.size!r} cannot be used for {held} and asks for {asked}, "
            f"because a claim can only grow. Set at least {asked}"
        )
    if not needs.can_grow and asked and amount(needs.size) > amount(asked):
        found.problems.append(
            f"{needs.size_key}: {needs.size!r} cannot be used for {held} and asks for {asked}, "
            "because this stack does not make it larger. Do that first, if its class allows it: "
            f"`kubectl -n {needs.namespace} patch persistentvolumeclaim {needs.claim} -p "
            f'\'{{"spec":{{"resources":{{"requests":{{"storage":"{needs.size}"}}}}}}}}\'`'
        )


def _check_free_volume(api: Api, needs: StorageNeeds, key: str, found: Findings) -> None:
    items = objects_at(api, VOLUMES)
    if items is None:
        found.unseen(f"whether a volume of storage class {needs.class_name} is free")
        return
    for item in items:
        spec = part(item, "spec")
        wanted_by = part(spec, "claimRef")
        ours = (needs.namespace, needs.claim)
        free = part(item, "status").get("phase") == "Available" and (
            not wanted_by or (wanted_by.get("namespace"), wanted_by.get("name")) == ours
        )
        modes = cast(list[str], spec.get("accessModes") or [])
        of_class = spec.get("storageClassName") == needs.class_name
        size = str(part(spec, "capacity").get("storage") or "0")
        is_large = not needs.size or amount(size) >= amount(needs.size)
        if free and of_class and is_large and needs.access_mode in modes:
            return
    size = f" and at least {needs.size}" if needs.size else ""
    found.problems.append(
        f"{key} cannot be used: nothing makes volumes for this class ({BY_HAND}), and none of its "
        f"volumes is free, has {needs.access_mode}{size}. Let one be made, or set another class"
    )


def _check_driver(api: Api, key: str, driver: str, found: Findings) -> None:
    """Check that a CSI driver is installed: it has a CSIDriver object, or a node registers it."""
    if not driver:
        return
    item = object_at(api, f"{DRIVERS}/{driver}")
    nodes = objects_at(api, DRIVERS_ON_NODES) if item is None else []
    if item == "unseen" or nodes is None:
        found.unseen(f"whether the CSI driver {driver} is installed")
        return
    specs = (part(node, "spec") for node in nodes)
    on_nodes = {str(entry["name"]) for spec in specs for entry in parts(spec, "drivers")}
    if item is None and driver not in on_nodes:
        there = listed(api, DRIVERS) or "none"
        found.problems.append(
            f"{key} cannot be used: its CSI driver {driver} is not installed; the cluster has "
            f"{there}. Let the driver be installed, or set another one"
        )


def _check_nodes(api: Api, needs: StorageNeeds, modes: set[str], found: Findings) -> None:
    """Check that the access modes allow all pods of the run to mount the volume."""
    if needs.pods < 2 or MANY_NODES in modes:
        return
    if ONE_NODE not in modes:
        found.problems.append(
            f"pods: {needs.pods} cannot be used: the claim {needs.claim} has {ONE_POD}, which only "
            f"one pod can mount. Set topology: single-pod, or a storage with {MANY_NODES}"
        )
        return
    nodes = objects_at(api, NODES)
    if nodes is None:
        found.unseen(f"whether all {needs.pods} pods can be on one node, as {ONE_NODE} needs")
        return
    usable: Sequence[Json] = [node for node in nodes if not part(node, "spec").get("unschedulable")]
    if needs.holding:
        usable = needs.holding(nodes, _limited(api, needs))
    if len(usable) > 1:
        found.problems.append(
            f"pods: {needs.pods} cannot be used: the claim {needs.claim} has {ONE_NODE}, which "
            f"only one node can mount, and the cluster has {len(usable)} nodes for these pods "
            f"({_names(usable)}). Set topology: "
            f"single-pod, or a storage with {MANY_NODES} (docs/storage.md)"
        )


def _limited(api: Api, needs: StorageNeeds) -> list[LimitedVolume]:
    """Where the volume of the claim can be used, if it cannot be used on every node."""
    spec = {"volumes": [{"persistentVolumeClaim": {"claimName": needs.claim}}]}
    return limited_volumes(api, needs.namespace, spec, needs.class_name, Findings())


def _names(nodes: Sequence[Json]) -> str:
    return first_of([name_of(node) for node in nodes], 5)


def _waiting(claim: str, class_name: str) -> str:
    return (
        f"storage class {class_name} binds the claim {claim} when the first pod uses it "
        f"({WAITS}); until then the claim is Pending, and nothing is wrong with it"
    )


def _binding(class_: Json | str | None) -> str:
    return str(class_.get("volumeBindingMode") or "") if isinstance(class_, dict) else ""
