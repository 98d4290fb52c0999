"""The program that `pulumi up` runs: settings, then platform, then run, then outputs.

docs/architecture.md shows how these parts belong together.
"""

import sys
from pathlib import Path

import pulumi

# Pulumi removes this folder from Python's path when this file has run. `main` runs later, and its
# imports need the folder.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from infra.engine import check_engine, show_other_packages
from infra.kinds import KINDS
from infra.kube_command import Connection
from infra.outputs import (
    EarlyOutputs,
    EarlyOutputsArgs,
    cluster_outputs,
    export,
    platform_outputs,
    run_outputs,
)
from infra.platform.access import AccessArgs, ClusterAccess
from infra.platform.guards import DestroyGuard, TaskPods, TaskPodsArgs
from infra.platform.k3s_state import start_observing_k3s
from infra.platform.known_cluster import known_identifier
from infra.platform.make import make_platform
from infra.platform.owner import Owner
from infra.platform.reference import check_cluster, check_image, referenced_platform
from infra.platform.stack_name import shown_stack_name
from infra.platform.stack_state import StackState
from infra.platform.trainer_image import TrainerImage, program_image_args, run_image_args
from infra.preflight import check_platform, check_run, show_idle_settings
from infra.run.former_namespaces import former_namespaces
from infra.run.make import make_run
from infra.run.run_guard import RunGuard, RunGuardArgs
from infra.settings import Settings, parse_settings, read_configuration


async def main() -> None:
    """Check all settings before any resource is registered, and then register the resources."""
    check_engine()
    show_other_packages()
    raw, secret_keys, stack = read_configuration()
    settings = parse_settings(raw, secret_keys, stack, KINDS)
    if settings.platform is None:
        await on_the_platform_of_another_stack(raw, secret_keys, settings)
    else:
        show_idle_settings(raw, settings.platform, settings.run)
        await on_an_own_platform(settings)


async def on_an_own_platform(settings: Settings) -> None:
    """Register the platform, the run if there is one, and last the DestroyGuard.

    The guard depends on everything else, so `pulumi destroy` comes to it first.
    """
    assert settings.platform is not None
    observation = start_observing_k3s(settings.platform.cluster, settings.platform.host)
    state = StackState()
    identifier = await known_identifier(settings.platform, observation, state)
    await check_platform(settings.platform, settings.run, state)
    made = await make_platform(settings.platform, observation, identifier)
    everything = [*made.ready]
    former = await former_namespaces(made.facts.namespace)
    cluster = cluster_outputs(made.facts, made.connection, former)
    export(cluster)
    export(platform_outputs(made))
    if settings.run:
        if built := settings.run.program_image:
            there = pulumi.ResourceOptions(depends_on=made.ready)
            image = program_image_args(settings.platform, built.plan, made.cluster.kubeconfig)
            everything.append(TrainerImage("program-image", image, there))
        run = make_run(
            settings.run,
            made.facts,
            made.connection,
            [*everything],
            made.cluster.options,
            owns_platform=True,
            former_namespaces=former,
        )
        everything += run.resources
        outputs = run_outputs(settings.run, made.facts, run)
        export(outputs)
        EarlyOutputs("early-outputs", EarlyOutputsArgs(cluster, outputs))
    DestroyGuard("destroy-guard", made.guard, pulumi.ResourceOptions(depends_on=everything))


async def on_the_platform_of_another_stack(
    raw: dict[str, str], secret_keys: set[str], settings: Settings
) -> None:
    """Register only a run, and last the RunGuard, to which `pulumi destroy` comes first.

    The run uses the platform's kubeconfig, and needs no access to its hosts.

    If the platform has a registry, the run can bring the image of a user's own program to it.
    """
    platform = await referenced_platform(settings.platform_stack)
    facts = platform.facts
    run_settings = parse_settings(raw, secret_keys, settings.stack, KINDS, facts.for_runs).run
    assert run_settings is not None
    show_idle_settings(raw, None, run_settings)
    check_image(settings.platform_stack, facts.image)
    kubeconfig = str(await platform.kubeconfig.future() or "")
    check_cluster(settings.platform_stack, facts, kubeconfig)
    await check_run(run_settings, facts, kubeconfig, StackState())
    owner = Owner("owner")
    connection = Connection(
        kubeconfig=platform.kubeconfig,
        kubeconfig_is_path=facts.kubeconfig_is_path,
        context=facts.context,
        namespace=facts.namespace,
        stack=shown_stack_name(settings.stack),
        owner=owner.identity,
        is_gone=facts.is_gone,
        generation=platform.generation,
    )
    task_pods = TaskPods("task-pods", TaskPodsArgs(connection, everyone=False))
    access = ClusterAccess(
        "cluster",
        AccessArgs(
            platform.kubeconfig, facts.context, facts.cluster_identifier, platform.generation
        ),
        # The component's provider copies the kubeconfig to a file, and the tasks of infra.kube
        # remove these copies. So at least one task exists before the provider does: if an `up` is
        # killed early, `pulumi destroy` runs that task's `delete`, which removes the copies.
        pulumi.ResourceOptions(depends_on=[task_pods]),
    )
    needed: list[pulumi.Resource] = [task_pods]
    if (built := run_settings.program_image) and built.by_run:
        image = run_image_args(built.plan, built.by_run, facts.namespace)
        needed.append(TrainerImage("program-image", image))
    former = await former_namespaces(facts.namespace)
    run = make_run(
        run_settings,
        facts,
        connection,
        needed,
        access.options,
        owns_platform=False,
        former_namespaces=former,
    )
    cluster = cluster_outputs(facts, connection, former)
    outputs = run_outputs(run_settings, facts, run)
    export(cluster)
    export(outputs)
    EarlyOutputs("early-outputs", EarlyOutputsArgs(cluster, outputs))
    guard = RunGuardArgs(connection, settings.platform_stack)
    everything = [access, *needed, *run.resources]
    RunGuard("run-guard", guard, pulumi.ResourceOptions(depends_on=everything))


pulumi.run(main)
