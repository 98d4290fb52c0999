"""Asks an existing cluster, before anything is registered, whether this stack can come up on it.

What is found here is found by `pulumi preview` too. A cluster that does not answer refuses nothing:
`pulumi up` will say so at its first step on it.
"""

import asyncio
from collections.abc import Iterable

import pulumi

from infra.kube.access import Access
from infra.kube.api import Api
from infra.kube.errors import ApiError, UnreachableError
from infra.kube.quick_look import quick_look
from infra.kube.rights import Need, as_roles, missing_rights
from infra.kube.storage_look import Findings, StorageNeeds, storage_findings
from infra.platform.facts import PlatformFacts
from infra.platform.make import make_storage, platform_facts
from infra.platform.trainer_image import trainer_image_args
from infra.rights import ADMINISTRATOR, needs_of, platform_kinds, run_kinds
from infra.run.make import make_run_value, run_names
from infra.settings import PlatformSettings, RunSettings
from infra.workloads import WORKLOADS
from infra.workloads.kind import WorkloadKind

SECONDS = 5.0
"""For each answer of the cluster."""


async def check_platform(settings: PlatformSettings, run: RunSettings | None) -> None:
    """Ask the cluster of an own platform; nothing is asked of a k3s that this stack installs.

    Raises:
        pulumi.RunError: the stack cannot come up; the text names each reason and the way out.
    """
    cluster = settings.cluster
    if cluster.kind != "existing":
        return
    storage = make_storage(settings)
    kinds = platform_kinds(settings, storage)
    if run:
        pull = trainer_image_args(settings).pull
        facts = platform_facts(settings, storage, pull, "")
        kinds |= _run_kinds(run, facts, owns_platform=True)
    needs = needs_of(kinds, settings.namespace)
    if settings.gpu_operator:
        needs.add(ADMINISTRATOR)
    volume = StorageNeeds(
        namespace=settings.namespace,
        claim=storage.claim,
        is_there=not storage.objects,
        class_name=storage.class_name,
        access_mode=storage.access_mode,
        size=storage.size,
        pods=run.compute.world.pods if run else 0,
    )
    access = Access(kubeconfig_path=cluster.kubeconfig, context=cluster.context)
    await _refuse(access, volume, needs, _kind(run) if run else None)


async def check_run(settings: RunSettings, facts: PlatformFacts, kubeconfig: str) -> None:
    """Ask the cluster of another stack's platform; see `check_platform`.

    Args:
        settings: of the run.
        facts: of the platform.
        kubeconfig: its path, where `facts.kubeconfig_is_path`; else nothing is asked.
    """
    if not facts.kubeconfig_is_path:
        return
    kinds = _run_kinds(settings, facts, owns_platform=False)
    volume = StorageNeeds(
        namespace=facts.namespace,
        claim=facts.volume.claim,
        is_there=not facts.volume.access_mode,
        class_name="",
        access_mode=facts.volume.access_mode,
        size="",
        pods=settings.compute.world.pods,
    )
    access = Access(kubeconfig_path=kubeconfig, context=facts.context)
    await _refuse(access, volume, needs_of(kinds, facts.namespace), _kind(settings))


def _kind(settings: RunSettings) -> WorkloadKind:
    return WORKLOADS[settings.compute.topology.name]


def _run_kinds(
    settings: RunSettings, facts: PlatformFacts, *, owns_platform: bool
) -> set[tuple[str, str, bool]]:
    names = run_names(settings, owns_platform=owns_platform)
    return run_kinds(make_run_value(settings, facts, names, pulumi.Output.from_input("")))


async def _refuse(
    access: Access, volume: StorageNeeds, needs: Iterable[Need], kind: WorkloadKind | None
) -> None:
    found = await asyncio.to_thread(ask, access, volume, needs, kind)
    for note in found.notes:
        pulumi.log.info(note)
    if found.problems:
        lines = [f"  - {problem}" for problem in found.problems]
        raise pulumi.RunError(
            "\n".join(["this stack cannot come up on its cluster; nothing was made:", *lines])
        )


def ask(
    access: Access, volume: StorageNeeds, needs: Iterable[Need], kind: WorkloadKind | None
) -> Findings:
    """All findings; a cluster that gives no answer leaves a note.

    Args:
        access: how the cluster is reached.
        volume: what the stack's pods mount.
        needs: what the user has to be allowed to do.
        kind: the kind of the stack's workload; None: it has no run.
    """
    try:
        with quick_look(access, SECONDS) as api:
            return _ask(api, volume, needs, kind)
    except (ApiError, UnreachableError, OSError, ValueError) as reason:
        return Findings(notes=[f"the cluster was not asked beforehand: {reason}"])


def _ask(
    api: Api, volume: StorageNeeds, needs: Iterable[Need], kind: WorkloadKind | None
) -> Findings:
    found = storage_findings(api, volume)
    if kind and kind.otherwise and api.get(f"/apis/{kind.api_version}") is None:
        found.problems.append(kind.otherwise)
    missing = missing_rights(api, needs, volume.namespace)
    if missing:
        found.problems.append(rights_problem(missing, volume.namespace))
    return found


def rights_problem(missing: list[Need], namespace: str) -> str:
    """The missing rights, as an administrator can apply them."""
    if ADMINISTRATOR in missing:
        return (
            "kubeconfig: its user is no administrator of the cluster, as the GPU Operator's chart "
            "needs. Set gpuOperator: false where the cluster has its GPUs already, or use an "
            "administrator's kubeconfig"
        )
    beyond = any(not need.namespace for need in missing)
    hint = (
        " Without rights on the whole cluster: namespaceExisting: use, and storage: storage-class "
        "or existing-claim."
        if beyond
        else ""
    )
    return (
        f"kubeconfig: its user may not do all that this stack needs.{hint} An administrator can "
        f"apply these roles and bind them to the user:\n{as_roles(missing, f'{namespace}-trains')}"
    )
