"""Checks, before anything is registered, whether this stack can come up on an existing cluster.

`pulumi preview` makes the same checks. If the cluster does not answer, this is no reason to refuse
the stack: `pulumi up` will fail at its first step on the cluster, and say why.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pulumi

from infra.cluster_check import NOTHING_INSTALLED, Installed, ask
from infra.controllers import CONTROLLERS
from infra.controllers.kube_prometheus_stack import CLAIM
from infra.dataset_check import ask_about_dataset, dataset_use
from infra.deliveries import DELIVERIES
from infra.deliveries.kind import Pull
from infra.image.platforms import architecture_of, this_machine
from infra.kube.api_server.access import Access
from infra.kube.api_server.findings import Findings
from infra.kube.api_server.rights import Need
from infra.kube.pods.only_here import OnlyHere
from infra.kube.pods.same_machine import boot_id
from infra.kube.runs.dataset_findings import DatasetUse
from infra.kube.runs.pods_findings import RunPods
from infra.kube.volumes.monitoring_claim import numbers_needs
from infra.kube.volumes.storage_findings import StorageNeeds
from infra.kube.workload import Workload
from infra.names import GPU_RESOURCE, ONE_NODE, QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from infra.platform.collected_facts import make_storage, platform_facts
from infra.platform.controllers import controller_for_tasks
from infra.platform.facts import PlatformFacts
from infra.platform.fixed_names import fixed_names
from infra.platform.former_cluster import former_cluster
from infra.platform.new_k3s import missing_controllers, missing_objects
from infra.platform.owner import owner_in_state
from infra.platform.stack_state import StackState, StateResource
from infra.platform.trainer_image import (
    TrainerImageArgs,
    program_image_args,
    run_image_args,
    to_build,
    trainer_image_args,
)
from infra.rights import (
    ADMINISTRATOR,
    QUEUES_PROGRAMS,
    needs_of,
    platform_kinds,
    run_kinds,
    run_programs,
)
from infra.run.run_value import make_run_value, run_names
from infra.settings import PlatformSettings, RunSettings
from infra.settings.controllers import PROMETHEUS
from infra.settings.idle import idle_settings
from infra.settings.queues import objects_of
from infra.storages.kind import Storage
from infra.workloads.pod import least_resources
from infra.workloads.run import Run

NOT_KNOWN_YET = "not-known-yet"
"""Stands for the owner of a stack in the pods of these checks, which are never created.

Before the first `up` of a stack its owner is not known.
"""


async def check_platform(
    settings: PlatformSettings, run: RunSettings | None, state: StackState
) -> None:
    """Check the cluster of this stack's own platform.

    A k3s that this stack installs is not checked. Before the first `up` of the stack it is known
    what that k3s will not have.

    Args:
        settings: the settings of the platform.
        run: the settings of the stack's run; None if it has none.
        state: the state of this stack.

    Raises:
        pulumi.RunError: The stack cannot come up. The text names each reason and what to do.
    """
    cluster = settings.cluster
    if run and (note := idle_machines(settings.devices.machines, run)):
        pulumi.log.info(note)
    if cluster.kind != "existing":
        if cluster.k3s.existing == "refuse":
            await _check_new_k3s(settings, run, state)
        await _check_dataset_on_former_k3s(settings, run, state)
        return
    storage = make_storage(settings)
    kinds = platform_kinds(settings, storage)
    pods, programs = None, QUEUES_PROGRAMS if settings.queues else ()
    images = [trainer_image_args(settings)]
    pull = images[0].pull
    controllers = [CONTROLLERS[each.name] for each in settings.controllers]
    if run:
        if built := run.program_image:
            images.append(program_image_args(settings, built.plan))
        value = _run_value(run, platform_facts(settings, storage, pull, ""), owns_platform=True)
        kinds |= run_kinds(value)
        programs = (*run_programs(value), *programs)
        pods = replace(
            _pods(run, value, settings.cluster.grows),
            class_name=storage.class_name,
            makes_volume=bool(storage.objects) and not storage.class_name,
            only_here=_only_here(settings, storage),
            here=boot_id(),
            secrets_come=pull.secrets if pull.docker_config else (),
            built_for=_built_for(images, await state.resources()),
            without=(GPU_RESOURCE,) if settings.gpu_operator else (),
            queues_come=objects_of(settings.queues) if settings.queues else (),
            groups_come=tuple(group for kind in controllers for group in kind.groups),
        )
    needs = needs_of(kinds, settings.namespace, programs)
    if settings.gpu_operator or controllers:
        needs.add(ADMINISTRATOR)
    volume = StorageNeeds(
        namespace=settings.namespace,
        claim=storage.claim,
        is_there=not storage.objects,
        class_name=storage.class_name,
        access_mode=storage.access_mode,
        size=storage.size,
        pods=run.compute.world.pods if run else 0,
        stack=settings.stack,
        has_data_folder=bool(storage.folder_on_host),
    )
    access = Access(kubeconfig_path=cluster.kubeconfig, context=cluster.context)
    installed = await _installed(settings, pull, state)
    use = dataset_use(run, settings.namespace, storage.claim, installed.owner)
    await _check_cluster(access, volume, needs, pods, installed, use)


async def _check_new_k3s(
    settings: PlatformSettings, run: RunSettings | None, state: StackState
) -> None:
    """Before the first `up` of the stack, check what its k3s will have.

    Raises:
        pulumi.RunError: It will not have the namespace, the run's queue, or a controller.
    """
    problems = [*missing_controllers(settings, run), *missing_objects(settings, run)]
    if problems and not owner_in_state(await state.resources()):
        raise _refusal("this stack cannot come up on a new k3s; nothing was made:", problems)


async def _check_dataset_on_former_k3s(
    settings: PlatformSettings, run: RunSettings | None, state: StackState
) -> None:
    """Check the name of the data set on the k3s that the last `up` has left.

    Before the first `up` of the stack, nobody else can have a run on it.

    Raises:
        pulumi.RunError: Another stack uses the name for other data.
    """
    resources = await state.resources()
    former, owner = former_cluster(resources), owner_in_state(resources)
    use = dataset_use(run, settings.namespace, make_storage(settings).claim, owner)
    if use and former and not former.is_existing and not settings.host.gone:
        await _check_dataset(Access(former.kubeconfig, context=former.context), use)


async def _installed(settings: PlatformSettings, pull: Pull, state: StackState) -> Installed:
    """What the platform puts on the cluster; `pull` is how nodes pull its image."""
    claim, numbers = settings.numbers_claim, None
    if claim is not None:
        prometheus = CONTROLLERS[PROMETHEUS]
        numbers = numbers_needs(prometheus.namespace, CLAIM, claim.class_name, claim.gib)
    return Installed(
        settings.stack,
        owner_in_state(await state.resources()),
        not settings.namespace_settings.exists,
        fixed_names(settings, pull),
        [controller_for_tasks(CONTROLLERS[each.name]) for each in settings.controllers],
        numbers,
        settings.pod_policy,
    )


def _built_for(images: Iterable[TrainerImageArgs], resources: Iterable[StateResource]) -> str:
    """The kind of processor for which `up` would build one of these images; empty: it does not."""
    return architecture_of(this_machine()) if to_build(images, resources) else ""


def _only_here(settings: PlatformSettings, storage: Storage) -> list[OnlyHere]:
    """What only the machine that runs Pulumi has: the folder of the data, the image, or both."""
    found: list[OnlyHere] = []
    if storage.folder_on_host and storage.access_mode == ONE_NODE:
        found.append(
            OnlyHere(
                f"storage: {settings.storage_kind.name!r}",
                f"the data are in the folder {storage.folder_on_host} of this machine",
                "storageOptions.shared: true if the folder is the same one on every node, or "
                "another storage (docs/storage.md)",
            )
        )
    if DELIVERIES[settings.delivery.name].needs_node:
        found.append(
            OnlyHere(
                f"imageDelivery: {settings.delivery.name!r}",
                "the image is brought to this machine alone",
                "imageDelivery: registry (docs/image.md)",
            )
        )
    return found


def show_idle_settings(
    raw: Mapping[str, str], platform: PlatformSettings | None, run: RunSettings | None
) -> None:
    """Show a note about settings that have no effect; see `idle_settings` for the arguments."""
    for note in idle_settings(raw, platform, run):
        pulumi.log.info(note)


def idle_machines(machines: int, run: RunSettings) -> str:
    """A note with settings that would use all machines, if the run has only one pod.

    Args:
        machines: the number of machines of the platform.
        run: the settings of the run.

    Returns:
        The note; empty if the platform has one machine or the run has several pods.
    """
    if machines == 1 or run.compute.world.pods > 1:
        return ""
    topology = run.compute.topology.name
    return (
        f"this run has one pod (topology: {topology}), so it trains on one machine, and the "
        f"platform has {machines - 1} more. To train on all {machines}: set topology: indexed-job, "
        f"pods: {machines}, and gpus to the GPUs of all of them (docs/one-to-many.md)"
    )


async def check_run(
    settings: RunSettings, facts: PlatformFacts, kubeconfig: str, state: StackState
) -> None:
    """Check the cluster of another stack's platform for a run; see `check_platform`.

    Args:
        settings: the settings of the run.
        facts: the facts of the platform.
        kubeconfig: the path of the kubeconfig; its content for a k3s that the platform has
            installed, of which only the name of the data set is checked.
        state: the state of this stack.

    Raises:
        pulumi.RunError: The run cannot come up. The text names each reason and what to do.
    """
    if note := idle_machines(facts.machines, settings):
        pulumi.log.info(note)
    owner = owner_in_state(await state.resources())
    use = dataset_use(settings, facts.namespace, facts.volume.claim, owner)
    if not facts.kubeconfig_is_path:
        if use and not facts.is_gone:
            await _check_dataset(Access(kubeconfig, context=facts.context), use)
        return
    value = _run_value(settings, facts, owns_platform=False)
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
    needs = needs_of(run_kinds(value), facts.namespace, run_programs(value))
    pods = _pods(settings, value, facts.cluster_grows)
    if (built := settings.program_image) and built.by_run:
        images = [run_image_args(built.plan, built.by_run, facts.namespace)]
        pods = replace(pods, built_for=_built_for(images, await state.resources()))
    await _check_cluster(access, volume, needs, pods, dataset=use)


def _run_value(settings: RunSettings, facts: PlatformFacts, *, owns_platform: bool) -> Run:
    names = run_names(settings, owns_platform=owns_platform)
    return make_run_value(settings, facts, names, NOT_KNOWN_YET)


def _pods(settings: RunSettings, run: Run, cluster_grows: bool) -> RunPods:
    spec = {**run.template["spec"], "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": run.template["metadata"], "spec": spec}
    return RunPods(
        namespace=run.namespace,
        pod=pod,
        pods=run.world.pods,
        grows=cluster_grows,
        workload=(run.kind.api_version, run.kind.kind) if run.kind.otherwise else None,
        setting=run.kind.setting,
        otherwise=run.kind.otherwise,
        queue=run.queue.get(QUEUE_LABEL, ""),
        queue_priority=run.queue.get(QUEUE_PRIORITY_LABEL, ""),
        level=run.placement.required_level,
        volcano_queue=run.kind.queue_of_its_own(run),
        has_dataset=not settings.config.has_program,
        dataset_resources=least_resources(run.parts),
        can_queue=run.kind.queued,
        itself=Workload(run.kind.api_version, run.kind.kind, run.workload_name),
        suspend=run.kind.suspend(run),
    )


async def _check_dataset(access: Access, use: DatasetUse) -> None:
    _show(await asyncio.to_thread(ask_about_dataset, access, use))


async def _check_cluster(
    access: Access,
    volume: StorageNeeds,
    needs: Iterable[Need],
    pods: RunPods | None,
    installed: Installed = NOTHING_INSTALLED,
    dataset: DatasetUse | None = None,
) -> None:
    _show(await asyncio.to_thread(ask, access, volume, needs, pods, installed, dataset))


def _show(found: Findings) -> None:
    """Show the notes, and raise RunError if there is a problem."""
    for note in found.notes:
        pulumi.log.info(note)
    if found.problems:
        headline = "this stack cannot come up on its cluster; nothing was made:"
        raise _refusal(headline, found.problems)


def _refusal(headline: str, problems: Iterable[str]) -> pulumi.RunError:
    """Return the error with these problems, one a line."""
    return pulumi.RunError("\n".join([headline, *(f"  - {problem}" for problem in problems)]))
