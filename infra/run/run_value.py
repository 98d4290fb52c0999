"""Combines the settings of a run and the facts of its platform into the run as a value.

All functions are pure.
"""

from dataclasses import dataclass

import pulumi

from infra.networks import NETWORKS
from infra.platform.facts import PlatformFacts
from infra.run.config_maps import config_map_name
from infra.run.dataset_job_name import dataset_job_name
from infra.run.pod_secrets import pod_secrets_name
from infra.run.program_files import program_volume
from infra.run.run_key import run_key_name
from infra.settings import RunSettings
from infra.settings.reader import LARGEST
from infra.settings.run_settings import dataset_only
from infra.workloads import WORKLOADS
from infra.workloads.pod import PodParts, times
from infra.workloads.queue import queue_labels
from infra.workloads.run import Placement, Resources, Run


@dataclass(frozen=True)
class RunNames:
    """Names of objects that contain a hash of the object's content, or the data set's name.

    The names of the data set's objects are empty if a user's own program runs.
    """

    run_config: str
    dataset_config: str
    dataset_job: str


def run_names(settings: RunSettings, *, owns_platform: bool) -> RunNames:
    """The names of one stack's objects, which differ from those of all other stacks."""
    config = settings.config
    run_config = config_map_name("run", settings.stack, config.to_mapping())
    if config.has_program:
        return RunNames(run_config, dataset_config="", dataset_job="")
    return RunNames(
        run_config=run_config,
        dataset_config=config_map_name("dataset", settings.stack, dataset_only(config)),
        dataset_job=dataset_job_name(
            config.dataset.name, settings.stack, settings.instance, owns_platform=owns_platform
        ),
    )


def make_run_value(
    settings: RunSettings, facts: PlatformFacts, names: RunNames, owner: pulumi.Input[str]
) -> Run:
    """The run as a value, from the settings and the platform's facts."""
    compute, pods = settings.compute, settings.pods
    return Run(
        name=settings.config.run_name,
        namespace=facts.namespace,
        instance=settings.instance,
        kind=WORKLOADS[compute.topology.name],
        kind_options=compute.topology.options,
        world=compute.world,
        parts=pod_parts(settings, facts, names.run_config),
        resources=Resources(pods.cpu_per_rank, pods.memory_per_rank, compute.shm_size),
        environment=pods.environment,
        network=NETWORKS[settings.network.name].with_options(settings.network.options),
        placement=Placement(
            node_selector=pods.node_selector,
            tolerations=pods.tolerations,
            priority_class=pods.priority_class,
            neighbours=pods.neighbours,
            queue_levels=settings.queue_levels,
            annotations=pods.demands.annotations,
            labels=pods.demands.labels,
            runtime_class=facts.runtime_class if compute.world.gpus_per_pod else "",
        ),
        key_secret=run_key_name(settings.stack),
        pod_secrets=pod_secrets_name(settings.stack, pods.secrets),
        grace_seconds=_grace_seconds(settings),
        metrics_port=settings.metrics_port,
        platform_identity=facts.identity,
        stack=settings.stack,
        owner=owner,
        queue=queue_labels(settings.queue.name, settings.queue.priority),
        program_volume=program_volume(settings.stack, settings.program_files),
        program_image=settings.config.program.image or "",
        run_dir=str(settings.config.run_dir),
        ttl_seconds=settings.ttl_seconds,
    )


def _grace_seconds(settings: RunSettings) -> int:
    """The time that a pod has to save when it is ended, and then to wait for its mirror."""
    seconds, checkpoint = settings.limits.termination_grace_seconds, settings.config.checkpoint
    if checkpoint.mirror is None:
        return seconds
    return min(seconds + checkpoint.mirror_wait_seconds, LARGEST)


def pod_parts(settings: RunSettings, facts: PlatformFacts, config_map: str) -> PodParts:
    """What the training pods and the data set's pod have in common."""
    pods = settings.pods
    asked = {"cpu": pods.cpu_limit_per_rank, "memory": pods.memory_limit_per_rank}
    of_rank = {resource: limit for resource, limit in asked.items() if limit}
    ranks = settings.compute.world.ranks_per_pod
    return PodParts(
        image=facts.image.reference,
        pull_policy=facts.image.pull_policy,
        pull_secrets=facts.image.pull_secrets,
        config_map=config_map,
        claim=facts.volume.claim,
        group_writes=facts.volume.group_writes,
        ca_config_map=facts.ca_config_map,
        bpe_file=settings.bpe_file.path_in_pods if settings.bpe_file else "",
        limits={resource: times(limit, ranks) for resource, limit in of_rank.items()},
        command_limits=of_rank,
        user=pods.demands.user,
    )
