"""Makes a run on a platform: the data set, the configuration and the training."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from infra.kube_command import Connection
from infra.names import DATASET, TRAINING
from infra.networks import NETWORKS
from infra.platform.facts import PlatformFacts
from infra.run.config_maps import RunConfigMap, RunConfigMapArgs, config_map_name
from infra.run.dataset import DatasetArgs, DatasetJob, Upload
from infra.run.dataset_job import DatasetJobArgs
from infra.run.dataset_job_name import dataset_job_name
from infra.run.pod_secrets import PodSecrets, PodSecretsArgs, pod_secrets_name
from infra.run.present_run import ask_about_present_run
from infra.run.program_files import (
    ProgramFiles,
    ProgramFilesArgs,
    program_files_name,
    program_volume,
)
from infra.run.run_key import RunKey, RunKeyArgs, run_key_name
from infra.run.verification import Verification, VerificationArgs
from infra.run.workload import Workload, WorkloadArgs
from infra.settings import DatasetFile, RunSettings
from infra.settings.run_settings import dataset_only
from infra.workloads import WORKLOADS
from infra.workloads.pod import PodParts, times
from infra.workloads.queue import queue_labels
from infra.workloads.run import Placement, Resources, Run


@dataclass(frozen=True)
class Names:
    """Names of objects that contain a hash of the object's content, or the data set's name.

    The names of the data set's objects are empty if a user's own program runs.
    """

    run_config: str
    dataset_config: str
    dataset_job: str


def run_names(settings: RunSettings, *, owns_platform: bool) -> Names:
    """The names of one stack's objects, which differ from those of all other stacks."""
    config = settings.config
    run_config = config_map_name("run", settings.stack, config.to_mapping())
    if config.has_program:
        return Names(run_config, dataset_config="", dataset_job="")
    place = (settings.stack, settings.instance)
    return Names(
        run_config=run_config,
        dataset_config=config_map_name("dataset", settings.stack, dataset_only(config)),
        dataset_job=dataset_job_name(config.dataset.name, *place, owns_platform=owns_platform),
    )


def make_run_value(
    settings: RunSettings, facts: PlatformFacts, names: Names, owner: pulumi.Input[str]
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
        grace_seconds=settings.limits.termination_grace_seconds,
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


@dataclass(frozen=True)
class MadeRun:
    """A run of this stack: the run as a value, its workload, and all its components."""

    run: Run
    workload: Workload
    resources: list[pulumi.Resource]


@dataclass(frozen=True)
class _Parts:
    """Registers the parts of one run. Each part waits for the resources in `after`."""

    settings: RunSettings
    facts: PlatformFacts
    connection: Connection
    names: Names
    run: Run
    after: Sequence[pulumi.Resource]
    opts: pulumi.ResourceOptions

    def inside(self, *resources: pulumi.Resource) -> pulumi.ResourceOptions:
        """The options of a part that also waits for `resources`."""
        return pulumi.ResourceOptions.merge(
            self.opts, pulumi.ResourceOptions(depends_on=[*self.after, *resources])
        )

    def dataset(self) -> list[pulumi.Resource]:
        """Register the data set; nothing for a user's own program, which brings its own data."""
        settings = self.settings
        if settings.config.has_program:
            return []
        content = dataset_only(settings.config)
        made = self._config_map("dataset-settings", self.names.dataset_config, DATASET, content)
        job = DatasetJobArgs(
            job=self.names.dataset_job,
            namespace=self.facts.namespace,
            stack=settings.stack,
            owner=self.connection.owner,
            parts=pod_parts(settings, self.facts, self.names.dataset_config),
            placement=self.run.placement,
            platform_identity=self.facts.identity,
            timeout_seconds=settings.limits.dataset_timeout_seconds,
        )
        files = uploads(settings.dataset_file, settings.bpe_file, settings.tokenizer_file)
        args = DatasetArgs(job, self.connection, files)
        return [made, DatasetJob("dataset", args, self.inside(made))]

    def configuration(self) -> list[pulumi.Resource]:
        """Register the run's configuration, its key, and the user's program files and secrets."""
        settings, run = self.settings, self.run
        place = (self.facts.namespace, settings.stack, self.connection.owner)
        content = settings.config.to_mapping()
        made: list[pulumi.Resource] = [
            self._config_map("run", self.names.run_config, TRAINING, content),
            RunKey("run-key", RunKeyArgs(run.key_secret, *place), self.inside()),
        ]
        if settings.program_files:
            name = program_files_name(settings.stack, settings.program_files)
            files = ProgramFilesArgs(name, settings.program_files, *place)
            made.append(ProgramFiles("program-files", files, self.inside()))
        if settings.pods.secrets:
            secrets = PodSecretsArgs(run.pod_secrets, settings.pods.secrets, *place)
            made.append(PodSecrets("pod-secrets", secrets, self.inside()))
        return made

    def _config_map(
        self, resource: str, name: str, of: str, content: dict[str, object]
    ) -> RunConfigMap:
        namespace, stack = self.facts.namespace, self.settings.stack
        args = RunConfigMapArgs(name, namespace, of, stack, self.connection.owner, content)
        return RunConfigMap(resource, args, self.inside())


def make_run(
    settings: RunSettings,
    facts: PlatformFacts,
    connection: Connection,
    after: list[pulumi.Resource],
    opts: pulumi.ResourceOptions,
    *,
    owns_platform: bool,
    former_namespaces: Sequence[str] = (),
) -> MadeRun:
    """Register everything of a run.

    Args:
        settings: the settings of the run.
        facts: the facts of the platform.
        connection: how the tasks reach the cluster for this stack.
        after: the resources for which the run waits.
        opts: the options of all components of the run: the cluster's provider, and the resource
            with which the run's objects are replaced and deleted.
        owns_platform: whether the platform belongs to this stack.
        former_namespaces: further namespaces in which the run may still be.
    """
    names = run_names(settings, owns_platform=owns_platform)
    run = make_run_value(settings, facts, names, connection.owner)
    parts = _Parts(settings, facts, connection, names, run, after, opts)
    needed = [*parts.dataset(), *parts.configuration()]
    limits = settings.limits
    args = WorkloadArgs(
        run=run,
        connection=connection,
        gpus_total=facts.gpus,
        when_busy=settings.when_busy,
        present=ask_about_present_run(connection, run.revision),
        wait_seconds=limits.when_busy_timeout_seconds if settings.when_busy == "wait" else 0,
        training_timeout_seconds=limits.training_timeout_seconds,
        pods_min=settings.config.train.nodes_min or settings.compute.world.pods,
        platform_stack=facts.stack,
        ready_means=_ready_means(settings),
        former_namespaces=former_namespaces,
    )
    workload = Workload("training", args, parts.inside(*needed))
    made: list[pulumi.Resource] = [*needed, workload]
    if settings.verify == "after":
        verified = VerificationArgs(run, str(settings.config.run_dir), connection, workload.uid)
        made.append(Verification("verification", verified, parts.inside(workload)))
    return MadeRun(run, workload, made)


def _ready_means(settings: RunSettings) -> str:
    """What it means that all pods of the run are ready, for messages.

    The launcher decides when a pod is ready (trainer/program/work.py). The text is empty for
    disttrain's trainer, whose ranks have all stepped then.
    """
    if not settings.config.has_program:
        return ""
    program = settings.config.program
    if not program.tells_steps:
        return (
            "the program runs (its steps are not seen, as neither program.progress nor "
            "program.progress_file is set)"
        )
    if program.progress_file is not None:
        return f"the program has written a step to {program.progress_file}"
    return "rank 0 of the program has printed a step"


def uploads(*files: DatasetFile | None) -> tuple[Upload, ...]:
    """The files that are copied from this machine to the volume."""
    return tuple(
        Upload(str(file.path), file.target, file.sha256, file.size) for file in files if file
    )
