"""Makes a run on a platform: the data set, the configuration and the training."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pulumi

from infra.kube_command import Connection
from infra.names import DATASET, TRAINING
from infra.platform.facts import PlatformFacts
from infra.run.config_maps import RunConfigMap, RunConfigMapArgs
from infra.run.dataset import DatasetArgs, DatasetJob, Upload
from infra.run.dataset_job import DatasetJobArgs
from infra.run.pod_secrets import PodSecrets, PodSecretsArgs
from infra.run.present_run import ask_about_present_run
from infra.run.program_files import ProgramFiles, ProgramFilesArgs, program_files_name
from infra.run.run_key import RunKey, RunKeyArgs
from infra.run.run_value import RunNames, make_run_value, pod_parts, run_names
from infra.run.verification import Verification, VerificationArgs
from infra.run.workload import Workload, WorkloadArgs
from infra.settings import PROJECT_ROOT, DatasetFile, RunSettings
from infra.settings.run_settings import dataset_only
from infra.workloads.run import Run


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
    names: RunNames
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
        args = DatasetArgs(job, self.connection, files, content["dataset"])
        return [made, DatasetJob("dataset", args, self.inside(made))]

    def configuration(self) -> list[pulumi.Resource]:
        """Register the run's configuration, its key, and the user's program files and secrets."""
        settings, run = self.settings, self.run
        whose = (self.facts.namespace, settings.stack, self.connection.owner)
        content = settings.config.to_mapping()
        made: list[pulumi.Resource] = [
            self._config_map("run", self.names.run_config, TRAINING, content),
            RunKey("run-key", RunKeyArgs(run.key_secret, *whose), self.inside()),
        ]
        if settings.program_files:
            name = program_files_name(settings.stack, settings.program_files)
            files = ProgramFilesArgs(name, settings.program_files, *whose)
            made.append(ProgramFiles("program-files", files, self.inside()))
        if settings.pods.secrets:
            secrets = PodSecretsArgs(run.pod_secrets, settings.pods.secrets, *whose)
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
    former_namespaces: Sequence[str],
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
    """The files that are copied from this machine to the volume.

    The command that copies them runs in the project's folder. So a file inside that folder is
    recorded by its path from there, which is the same in every checkout.
    """
    return tuple(
        Upload(_recorded(file.path), file.target, file.sha256, file.size) for file in files if file
    )


def _recorded(path: Path) -> str:
    folder = PROJECT_ROOT.resolve()
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)
