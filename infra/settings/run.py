"""Reads the settings of a run: what is trained, with which data set, and where the pods run."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from infra.airgap.needs import DATASET, GPT2, TOKENIZER
from infra.settings.airgap import BundleSettings
from infra.settings.compute import (
    ComputeSettings,
    check_nodes_min,
    check_shared_memory,
    read_compute,
)
from infra.settings.dataset_file import DatasetFile, bundled_file, local_file
from infra.settings.kind_options import read_kind
from infra.settings.kinds import Chosen, Kinds, WorkloadChoice
from infra.settings.limits import LimitSettings
from infra.settings.limits_ttl import read_ttl
from infra.settings.monitoring import read_metrics_port
from infra.settings.platform_for_runs import PlatformForRuns
from infra.settings.pods import PodSettings, read_pods
from infra.settings.pods_demands import PodDemands
from infra.settings.program import has_program, read_program
from infra.settings.program_image import ProgramImage
from infra.settings.program_launcher import check_launcher
from infra.settings.queue import QueueSettings, read_queue
from infra.settings.queues_topology import check_placement
from infra.settings.reader import Reader
from infra.settings.run_dataset import (
    SHOWN_SECRET,
    check_time_for_dataset,
    dataset_files,
    dataset_options,
)
from infra.settings.run_network import (
    check_contradictions,
    check_transport_policy,
    check_use_of_network,
    read_network,
)
from infra.settings.run_settings import DatasetChoice, build_run_config, read_overrides
from infra.settings.stack_name import NAME_OF_STACK
from trainer.config import RunConfig
from trainer.config.option import NAME_PATTERN

_INSTANCE = r"([a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?)?"


@dataclass(frozen=True)
class RunSettings:
    """Everything that a stack says about its run."""

    stack: str
    instance: str
    compute: ComputeSettings
    network: Chosen
    pods: PodSettings
    limits: LimitSettings
    when_busy: Literal["replace", "wait", "refuse"]
    queue: QueueSettings
    queue_levels: tuple[str, ...]
    verify: Literal["never", "before", "after"]
    config: RunConfig
    dataset_file: DatasetFile | None
    bpe_file: DatasetFile | None
    tokenizer_file: DatasetFile | None
    metrics_port: int
    program_files: Mapping[str, bytes]
    program_image: ProgramImage | None
    ttl_seconds: int | None


@dataclass(frozen=True)
class _Work:
    """What a run does: its configuration, and what this machine gives to its pods."""

    config: RunConfig
    dataset_file: DatasetFile | None = None
    tokenizer_file: DatasetFile | None = None
    program_files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    program_image: ProgramImage | None = None


def read_run(
    reader: Reader,
    stack: str,
    kinds: Kinds,
    platform: PlatformForRuns,
    bundle: BundleSettings | None,
    limits: LimitSettings,
    demands: PodDemands,
) -> RunSettings | None:
    """Read every key of a run; None if the run's configuration is wrong.

    Args:
        reader: gives the values and collects the problems with them.
        stack: name of the stack, which is the run's name unless `runName` is set.
        kinds: the registries of kinds.
        platform: what the run has to know about its platform.
        bundle: the bundle from which texts are taken; None if there is none.
        limits: the time limits.
        demands: what all pods of the stack have.
    """
    chosen = read_kind(reader, "topology", "topologyOptions", kinds.workloads)
    workload = kinds.workloads[chosen.name]
    compute = read_compute(reader, chosen, workload, platform.devices)
    verify = reader.choice("verify", ("never", "before", "after"))
    # A wrong name of the stack has a message of its own, and the run's name gets no second one.
    stack_name = stack if reader.are_right(NAME_OF_STACK) else "unknown"
    run_name = _name(reader, "runName", f"({NAME_PATTERN})?") or stack_name
    work = _read_work(reader, run_name, kinds, platform, bundle, smoke_test=verify == "before")
    if work:
        check_launcher(reader, work.config.program, compute.world)
    instance = _read_instance(reader, workload)
    network = read_network(reader, kinds.networks, demands.annotations)
    profile = kinds.networks[network.name]
    check_use_of_network(reader, profile, compute, several_pods=workload.several_pods)
    pods = read_pods(reader, platform.devices.accelerator, demands)
    check_shared_memory(reader, compute, pods.memory_limit_per_rank)
    check_contradictions(reader, profile, pods)
    metrics_port = read_metrics_port(reader)
    when_busy = reader.choice("whenBusy", ("replace", "wait", "refuse"))
    queue = read_queue(reader, chosen, kinds.workloads, when_busy)
    queue_levels = check_placement(reader, pods, queue, platform.queue)
    ttl_seconds = read_ttl(reader, chosen, kinds.workloads)
    if work is None:
        return None
    config = work.config
    if not config.has_program:
        check_time_for_dataset(reader, config.dataset, limits)
    check_transport_policy(reader, config.train.transport_policy, profile, pods)
    check_nodes_min(reader, config.train.nodes_min, compute, workload)
    needs_bpe = bundle is not None and config.dataset.tokenizer == GPT2
    return RunSettings(
        stack=stack,
        instance=instance,
        compute=compute,
        network=network,
        pods=pods,
        limits=limits,
        queue=queue,
        queue_levels=queue_levels,
        when_busy=cast(Literal["replace", "wait", "refuse"], when_busy),
        verify=cast(Literal["never", "before", "after"], verify),
        config=config,
        dataset_file=work.dataset_file,
        bpe_file=bundled_file(bundle, TOKENIZER, GPT2) if bundle and needs_bpe else None,
        tokenizer_file=work.tokenizer_file,
        metrics_port=metrics_port,
        program_files=work.program_files,
        program_image=work.program_image,
        ttl_seconds=ttl_seconds,
    )


def _read_work(
    reader: Reader,
    run_name: str,
    kinds: Kinds,
    platform: PlatformForRuns,
    bundle: BundleSettings | None,
    *,
    smoke_test: bool,
) -> _Work | None:
    """Read the user's own program, or else the training; None if the configuration is wrong."""
    if has_program(reader):
        program = read_program(reader, run_name, kinds.deliveries, platform.delivery)
        if program is None:
            return None
        return _Work(program.config, program_files=dict(program.files), program_image=program.image)
    config, dataset_file, tokenizer_file = _read_config(
        reader, run_name, platform.devices.accelerator, bundle, smoke_test=smoke_test
    )
    return _Work(config, dataset_file, tokenizer_file) if config else None


def _read_instance(reader: Reader, workload: WorkloadChoice) -> str:
    """Read the text that is added to the names of the run's objects."""
    instance = reader.text(
        "instance",
        pattern=_INSTANCE,
        form="a name of at most 30 lower-case letters, digits and '-'",
        example="second",
    )
    if len(instance) > (most := workload.longest_instance):
        reader.problem(
            "instance",
            instance,
            f"it has {len(instance)} characters, and the names of the pods of topology "
            f"{workload.name} have room for {most}",
            "Shorten it",
        )
    # The instance is added to the names with a hyphen.
    ending = re.search(f"{workload.child_ending}$", f"-{instance}")
    if ending and ending[0]:
        reason = (
            f"the name of the run then ends with {ending[0]}, which the controller of topology "
            f"{workload.name} adds to the name of another run for a part of it"
        )
        reader.problem("instance", instance, reason, "Choose one with another ending")
    return instance


def _read_config(
    reader: Reader,
    run_name: str,
    accelerator: str,
    bundle: BundleSettings | None,
    *,
    smoke_test: bool,
) -> tuple[RunConfig | None, DatasetFile | None, DatasetFile | None]:
    """Return the run's configuration, and this machine's files with the text and the tokenizer."""
    dataset, file, tokenizer_file = _read_dataset(reader)
    preset = _name(reader, "preset", NAME_PATTERN)
    overrides = read_overrides(reader)
    if not reader.are_right("preset"):
        return None, file, tokenizer_file

    def build(dataset: DatasetChoice) -> tuple[RunConfig | None, list[str]]:
        return build_run_config(
            preset, run_name, accelerator, dataset, overrides, smoke_test=smoke_test
        )

    config, problems = build(dataset)
    if bundle and config and config.dataset.url and config.dataset.sha256:
        file = bundled_file(bundle, DATASET, config.dataset.sha256)
        if file:
            dataset = replace(dataset, url=None, file=file.path_in_pods, sha256=file.sha256)
            config, problems = build(dataset)
    for problem in problems:
        reader.add_problem(problem)
    return config, file, tokenizer_file


def _read_dataset(
    reader: Reader,
) -> tuple[DatasetChoice, DatasetFile | None, DatasetFile | None]:
    """Return the settings of the data set, and this machine's files with the text and tokenizer."""
    file_text, url = reader.text("datasetFile"), _dataset_url(reader)
    sha256, files = reader.checksum("datasetSha256"), dataset_files(reader)
    _check_sources(reader, file_text, url, sha256, several=bool(files))
    file = local_file(reader, "datasetFile", file_text) if file_text else None
    if file and sha256 not in ("", file.sha256):
        reader.problem(
            "datasetSha256",
            sha256,
            f"datasetFile is {file.path}, and its sha256 is {file.sha256}",
            "Set datasetFile to the text that was meant, or remove datasetSha256 to take this one: "
            "`pulumi config rm datasetSha256`",
        )
    tokenizer, tokenizer_file = _tokenizer(reader), None
    if tokenizer.endswith(".json"):
        tokenizer_file = local_file(reader, "datasetTokenizer", tokenizer)
    choice = DatasetChoice(
        name=_name(reader, "datasetName", f"({NAME_PATTERN})?") or None,
        url=url or None,
        file=file.path_in_pods if file else None,
        sha256=file.sha256 if file else sha256 or None,
        tokenizer=tokenizer_file.path_in_pods if tokenizer_file else tokenizer or None,
        files=files or None,
        options=dataset_options(reader),
    )
    return choice, file, tokenizer_file


def _check_sources(reader: Reader, file: str, url: str, sha256: str, *, several: bool) -> None:
    """Check that the text has one source, and that a download has a checksum."""
    if file and url:
        reason = "datasetUrl is set too, and there is one text"
        reader.problem("datasetFile", file, reason, "Remove one of the two")
    for key, value in (("datasetFile", file), ("datasetUrl", url)):
        if several and value:
            reader.problem(key, value, "datasetFiles is set too", "Remove one of the two")
    if url and not sha256 and reader.are_right("datasetSha256"):
        reader.problem(
            "datasetSha256",
            "",
            "without it nobody would notice another text at datasetUrl",
            "Set the sha256 of the text; `sha256sum` shows it",
        )


def _dataset_url(reader: Reader) -> str:
    """Return the text's address. It must hold no secret, because it is in the run's ConfigMap."""
    url = reader.url("datasetUrl")
    if url is None:
        return ""
    if url.url_has_password or reader.is_encrypted("datasetUrl"):
        reader.problem(
            "datasetUrl",
            url.url_without_password,
            SHOWN_SECRET,
            "Download the text to this machine and set datasetFile, or use an address without "
            "user, password and token",
        )
    return url.url_without_password


def _tokenizer(reader: Reader) -> str:
    form = "char, gpt2 or the path of a tokenizer.json"
    return reader.text(
        "datasetTokenizer", pattern=r"(char|gpt2|.+\.json)?", form=form, example="gpt2"
    )


def _name(reader: Reader, key: str, pattern: str) -> str:
    form = (
        "a name of at most 63 letters, digits, '.', '_' and '-' that begins with a letter or a "
        "digit"
    )
    return reader.text(key, pattern=pattern, form=form, example="shakespeare-char")
