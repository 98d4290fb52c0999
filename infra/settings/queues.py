"""Reads the queue of Kueue that a platform makes for its runs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from infra.kube.quantity import amount
from infra.names import GPU_RESOURCE
from infra.settings.cluster import ClusterSettings
from infra.settings.devices import Devices
from infra.settings.pod_labels import is_key
from infra.settings.pods import PodSettings
from infra.settings.queues_topology import read_levels
from infra.settings.reader import Reader
from infra.settings.similar_names import did_you_mean, is_misspelt
from infra.world import World

KEY = "queues"
_PARTS = ("name", "quota", "priorities", "topology")
_NAME = r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?"  # The name becomes the value of a label.
# The resources of Kubernetes itself. The name of a device's resource begins with a domain, such as
# nvidia.com/gpu.
_BUILT_IN = r"cpu|memory|ephemeral-storage|pods|hugepages-.+"
_AMOUNT = r"[0-9]{1,15}(\.[0-9]{1,9})?(m|[kMGTPE]|[KMGTPE]i)?"
_LONGEST_NAME = 63
_LEAST_BYTES = 2**20  # A smaller amount of memory has no unit because the user forgot it.
_LARGEST_PRIORITY = 2**31 - 1


@dataclass(frozen=True)
class QueuesSettings:
    """The queue, its quota and its priorities, which the platform makes.

    Args:
        name: name of the LocalQueue.
        resources: the resources that pods of the platform request. Each of them needs a quota.
        quota: amounts by resource, as Kubernetes writes them. For a resource without an amount,
            the quota is what the nodes offer.
        priorities: values by the names of WorkloadPriorityClasses.
        levels: levels of the topology: labels of nodes, from the widest place to the machine;
            empty if the queue has no topology.
    """

    name: str
    resources: tuple[str, ...]
    quota: Mapping[str, str]
    priorities: Mapping[str, int]
    levels: tuple[str, ...] = ()

    @property
    def asked(self) -> tuple[str, ...]:
        """The resources without an amount in `quota`, for which the nodes' amounts are read."""
        return tuple(resource for resource in self.resources if resource not in self.quota)


def cluster_queue_name(namespace: str, queue: str) -> str:
    """Return the name of the ClusterQueue and of its flavor, which are in no namespace."""
    return f"{namespace}-{queue}"


def objects_of(queues: QueuesSettings) -> tuple[str, ...]:
    """Return the objects that a run can name, as in paths of Kubernetes: `localqueues/gpus`."""
    classes = (f"workloadpriorityclasses/{name}" for name in queues.priorities)
    return (f"localqueues/{queues.name}", *classes)


def read_queues(
    reader: Reader, cluster: ClusterSettings, devices: Devices, namespace: str
) -> QueuesSettings | None:
    """Read the setting `queues`; None if no queue is made."""
    given = reader.mapping(KEY)
    if not given:
        return None
    for part in sorted(set(given) - set(_PARTS)):
        reader.problem(
            f"{KEY}.{part}",
            given[part],
            f"there is no such key{did_you_mean(part, _PARTS)}",
            f"Use one of {', '.join(_PARTS)}",
        )
    is_named = "name" in given or not is_misspelt("name", given, _PARTS)
    name = _name(reader, given.get("name", ""), namespace) if is_named else "unknown"
    quota = _quota(reader, given.get("quota", {}))
    pods_ask = ("cpu", "memory", *((GPU_RESOURCE,) if devices.accelerator == "gpu" else ()))
    found = QueuesSettings(
        name=name,
        resources=(*pods_ask, *sorted(set(quota) - set(pods_ask))),
        quota=quota,
        priorities=_priorities(reader, given.get("priorities", {})),
        levels=read_levels(reader, given.get("topology", [])),
    )
    if cluster.grows and reader.are_right(f"{KEY}.quota"):
        for resource in found.asked:
            reader.problem(
                f"{KEY}.quota.{resource}",
                "",
                "clusterGrows is true, so the nodes of this moment do not say how much there is",
                "Set the amount that runs may hold at one time",
            )
    return found


def _name(reader: Reader, value: object, namespace: str) -> str:
    key = f"{KEY}.name"
    if type(value) is not str or re.fullmatch(_NAME, value) is None:
        hint = "Write it like gpus, with lower-case letters, digits, '.' and '-'"
        reader.problem(key, value, "it is not the name of a LocalQueue", hint)
        return "invalid"
    whole = cluster_queue_name(namespace, value)
    if len(whole) > _LONGEST_NAME:
        reader.problem(
            key,
            value,
            f"its ClusterQueue would be called {whole}, and a name has at most {_LONGEST_NAME} "
            "letters",
            "Set a shorter name",
        )
    return value


def _quota(reader: Reader, value: object) -> dict[str, str]:
    key, found = f"{KEY}.quota", dict[str, str]()
    for resource, given in _mapping(reader, key, value, "{cpu: 64, memory: 512Gi}").items():
        if fault := _quota_fault(resource, str(given)):
            reader.problem(f"{key}.{resource}", given, *fault)
        else:
            found[resource] = str(given)
    return found


def _quota_fault(resource: str, given: str) -> tuple[str, str] | None:
    """Why this quota cannot be used, and what to do; None if it can."""
    if not is_key(resource) or ("/" not in resource and not re.fullmatch(_BUILT_IN, resource)):
        return "it is not the name of a resource", f"Write it like cpu, memory or {GPU_RESOURCE}"
    if re.fullmatch(_AMOUNT, given) is None:
        return "it is not an amount", "Write it like 64, 500m or 512Gi"
    if not float(re.split("[a-zA-Z]", given)[0]):
        hint = "Set more than 0, or remove it: then it is what the nodes offer"
        return "no run could ever start", hint
    has_no_unit = re.fullmatch(r"[\d.]+m?", given) is not None  # m: thousandths
    if resource == "memory" and has_no_unit and (size := amount(given)) < _LEAST_BYTES:
        reason = f"it is {size:g} bytes, and no pod could ever start with that"
        return reason, f"Write its unit, like {given.removesuffix('m')}Gi"
    if resource == GPU_RESOURCE and not given.isdecimal():
        return "it is not a whole number", "Set one"
    return None


def check_own_run(
    reader: Reader, queues: QueuesSettings, queue: str, world: World, pods: PodSettings
) -> None:
    """Note a problem if the stack's own run needs more than the quota of its queue.

    Args:
        reader: collects the problems that are found.
        queues: the queue that the platform makes.
        queue: name of the run's LocalQueue; empty if the run is in no queue.
        world: the numbers of ranks and GPUs of the run.
        pods: the settings of the run's pods, with what each rank requests.
    """
    if queue != queues.name:
        return
    quota = queues.quota.get(GPU_RESOURCE, "")
    if quota and world.gpus > int(quota):
        reader.problem(
            f"{KEY}.quota.{GPU_RESOURCE}",
            quota,
            f"the run of this stack is in queue {queue} with {world.gpus} GPUs, and would wait for "
            "ever",
            f"Set at least {world.gpus}, or lower pods * gpusPerPod to at most {quota}",
        )
    ranks = world.world_size
    for resource, each in (("cpu", pods.cpu_per_rank), ("memory", pods.memory_per_rank)):
        key, quota = f"{resource}PerRank", queues.quota.get(resource, "")
        if quota and reader.are_right(key) and _thousandths(each) * ranks > _thousandths(quota):
            reader.problem(
                f"{KEY}.quota.{resource}",
                quota,
                f"the run of this stack is in queue {queue} and requests {ranks} * {each} ({key}), "
                "and would wait for ever",
                f"Set at least that, or lower {key} or the number of ranks",
            )


def _thousandths(quantity: str) -> int:
    """Return a quantity in thousandths, because 3 * 0.1 is more than 0.3 in binary fractions."""
    return round(1000 * amount(quantity))


def _priorities(reader: Reader, value: object) -> dict[str, int]:
    key, found = f"{KEY}.priorities", dict[str, int]()
    for name, number in _mapping(reader, key, value, "{urgent: 1000}").items():
        if re.fullmatch(_NAME, name) is None:
            reason, hint = "it is not the name of a WorkloadPriorityClass", "Write it like urgent"
            reader.problem(f"{key}.{name}", number, reason, hint)
        elif type(number) is not int or abs(number) > _LARGEST_PRIORITY:
            hint = "Set one, such as 1000; a run without a class has 0"
            reader.problem(f"{key}.{name}", number, "it is not a whole number of 32 bits", hint)
        else:
            found[name] = number
    return found


def _mapping(reader: Reader, key: str, value: object, example: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        reader.problem(key, value, "it is not an object", f"Write it like {example}")
        return {}
    return cast(dict[str, Any], value)
