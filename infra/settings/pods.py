"""Reads the settings of the training pods: requests, variables, and where they may run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from infra.kube.quantity import amount
from infra.names import GPU_TOLERATION
from infra.settings.pod_environment import check_environment
from infra.settings.pod_labels import check_labels, read_texts, toleration_fault
from infra.settings.pods_demands import PodDemands
from infra.settings.pods_neighbours import NeighbourSettings, read_neighbours
from infra.settings.reader import Reader
from infra.settings.secret import Secret


@dataclass(frozen=True)
class _Amount:
    """How a user writes an amount: a regular expression, and for messages its form in words and an
    example."""

    pattern: str
    form: str
    example: str


_CPU = _Amount(r"[1-9][0-9]{0,5}m?", "a whole number of CPUs or of thousandths (m)", "2 or 1500m")
_MEMORY = _Amount(r"[1-9][0-9]{0,8}(Ki|Mi|Gi|Ti)", "a size in Ki, Mi, Gi or Ti", "4Gi")
# Requests of containers whose work is short. Without requests a pod would be in the class
# BestEffort, which is evicted first, and a namespace with a quota of requests would refuse it.
LEAST_REQUESTS = {"cpu": "100m", "memory": "256Mi"}
# Requests of one rank if the setting is `auto`. They keep the pod out of Kubernetes' class
# BestEffort, and are small enough for the smallest machine that can train at all.
DEFAULT_REQUESTS = {"gpu": ("1", "4Gi"), "cpu": ("100m", "256Mi")}


@dataclass(frozen=True)
class PodSettings:
    """What training pods request, and what is set on them.

    CPU and memory are Kubernetes quantities, such as `500m` and `4Gi`. An empty limit means no
    limit. Tolerations have the form that Kubernetes takes.
    """

    cpu_per_rank: str
    memory_per_rank: str
    cpu_limit_per_rank: str
    memory_limit_per_rank: str
    environment: Mapping[str, str]
    secrets: Mapping[str, Secret]
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]
    priority_class: str
    neighbours: NeighbourSettings
    demands: PodDemands


def read_pods(reader: Reader, accelerator: str, demands: PodDemands) -> PodSettings:
    """Read the settings of the pods. `reader` collects the problems.

    Args:
        reader: gives the values.
        accelerator: `gpu` or `cpu`.
        demands: what all pods of the stack have.
    """
    cpu, memory = DEFAULT_REQUESTS[accelerator]
    cpu = _quantity(reader, "cpuPerRank", _CPU, cpu)
    memory = _quantity(reader, "memoryPerRank", _MEMORY, memory)
    return PodSettings(
        cpu_per_rank=cpu,
        memory_per_rank=memory,
        cpu_limit_per_rank=_limit(reader, "cpuLimitPerRank", _CPU, cpu),
        memory_limit_per_rank=_limit(reader, "memoryLimitPerRank", _MEMORY, memory),
        environment=_environment(reader),
        secrets=_secrets(reader),
        node_selector=_node_selector(reader),
        tolerations=_tolerations(reader),
        priority_class=reader.text(
            "priorityClass",
            pattern=r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?)?",
            form="the name of a PriorityClass",
            example="high-priority",
        ),
        neighbours=read_neighbours(reader),
        demands=demands,
    )


def _quantity(reader: Reader, key: str, kind: _Amount, default: str) -> str:
    form = f"auto or {kind.form}"
    text = reader.text(key, pattern=f"auto|{kind.pattern}", form=form, example=kind.example)
    return default if text in ("auto", "") else text


def _limit(reader: Reader, key: str, kind: _Amount, request: str) -> str:
    """Read a limit of one rank, which must not be below any request that it holds for.

    The limit also holds for the pod that prepares the data set, which requests LEAST_REQUESTS.

    Args:
        reader: collects the problems that are found.
        key: key of the setting.
        kind: what an amount looks like.
        request: the amount that each rank requests.
    """
    needed = key.replace("Limit", "")
    form = f"{kind.form}; empty: no limit"
    text = reader.text(key, pattern=f"({kind.pattern})?", form=form, example=kind.example)
    if not text or not reader.are_right(key, needed):
        return text
    least = LEAST_REQUESTS[needed.removesuffix("PerRank")]
    if amount(text) < amount(request):
        reason = f"{needed} requests {request}, and Kubernetes takes no limit below the request"
        reader.problem(key, text, reason, f"Set at least {request}, or lower {needed}")
    elif amount(text) < amount(least):
        reason = f"it holds for the pod that prepares the data set, too, which requests {least}"
        reader.problem(key, text, reason, f"Set at least {least}")
    return text


def _texts(reader: Reader, key: str) -> dict[str, str]:
    return read_texts(reader, key, reader.mapping(key))


def _environment(reader: Reader) -> dict[str, str]:
    variables = _texts(reader, "podEnvironment")
    check_environment(reader, "podEnvironment", variables)
    if variables:
        reader.refuse_encrypted(
            "podEnvironment",
            "everybody who may see the pods would see it there",
            "Set what is secret by `pulumi config set --secret --path podSecrets.NAME`, remove all "
            "of podEnvironment (`pulumi config rm podEnvironment`), and set the rest again without "
            "--secret",
        )
    return variables


def _secrets(reader: Reader) -> dict[str, Secret]:
    reader.hide("podSecrets")
    variables = _texts(reader, "podSecrets")
    check_environment(reader, "podSecrets", variables)
    if variables and not reader.is_encrypted("podSecrets"):
        reader.problem(
            "podSecrets",
            variables,
            "its values are in plain text in the stack's file",
            "Set each by `pulumi config set --secret --path podSecrets.NAME`",
        )
    for name in reader.mapping("podEnvironment"):
        if name in variables:
            _refuse_second(reader, name)
    return {name: Secret(value) for name, value in variables.items()}


def _refuse_second(reader: Reader, name: str) -> None:
    """Refuse a variable that podEnvironment sets, too: the pods would get that value."""
    key = f"podEnvironment.{name}"
    reader.hide("podEnvironment")  # The user may have forgotten to remove the secret from it.
    reason = "podSecrets has a variable of the same name, and the pods would not get that one"
    hint = f"Remove one of the two, such as by `pulumi config rm --path {key}`"
    reader.problem(key, name, reason, hint)


def _node_selector(reader: Reader) -> dict[str, str]:
    selector = _texts(reader, "nodeSelector")
    check_labels(reader, "nodeSelector", selector)
    return selector


def _tolerations(reader: Reader) -> tuple[Mapping[str, Any], ...]:
    """Read the user's tolerations, and add the one for nodes that only accept pods with GPUs."""
    found: list[Mapping[str, Any]] = [GPU_TOLERATION]
    for item in reader.sequence("tolerations"):
        if fault := toleration_fault(item):
            hint = "Write it as a pod has it: {key: team, operator: Equal, value: ml}"
            reader.problem("tolerations", cast(object, item), fault, hint)
            continue
        found.append(cast(dict[str, Any], item))
    return tuple(found)
