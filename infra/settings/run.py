"""Reads the settings of a run: what is trained, with which data set, and where the pods run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from infra.airgap.needs import DATASET, GPT2, TOKENIZER
from infra.names import DATA_MOUNT, INCOMING
from infra.settings.airgap import BundleSettings
from infra.settings.compute import ComputeSettings, check_nodes_min, read_compute
from infra.settings.devices import Devices
from infra.settings.file_checksum import file_checksum
from infra.settings.kinds import Chosen, Kinds, read_kind
from infra.settings.limits import LimitSettings
from infra.settings.limits_ttl import read_ttl
from infra.settings.local_path import local_path
from infra.settings.monitoring import read_metrics_port
from infra.settings.pods import PodSettings, read_pods
from infra.settings.pods_demands import PodDemands
from infra.settings.program import is_set, read_program
from infra.settings.program_image import PlatformDelivery, ProgramImage
from infra.settings.program_launcher import check_launcher
from infra.settings.queue import QueueSettings, read_queue
from infra.settings.queues_topology import PlatformQueue, check_placement
from infra.settings.reader import Reader
from infra.settings.run_dataset import (
    SHOWN_SECRET,
    check_time_for_dataset,
    dataset_files,
    dataset_options,
)
from infra.settings.run_network import (
    check_transport_policy,
    check_use_of_network,
    read_network,
)
from infra.settings.run_settings import DatasetChoice, build_run_config, read_overrides
from infra.settings.stack_name import NAME_OF_STACK
from trainer.config import RunConfig
from trainer.config.option import NAME_PATTERN
from trainer.data.sources import format_by_name, known_ending

_INSTANCE = r"([a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?)?"


@dataclass(frozen=True)
class DatasetFile:
    """A file of this machine that is copied to the volume.

    Args:
        path: path of the file on this machine.
        sha256: checksum of its content, in hexadecimal digits.
        size: number of bytes.
    """

    path: Path
    sha256: str
    size: int

    @property
    def target(self) -> str:
        """The file's path below the volume's root. The checksum is its name.

        An ending such as `.jsonl.gz` is kept, because `prepare` reads the format from it.
        """
        ending = "" if format_by_name(self.path.name) == "text" else known_ending(self.path.name)
        return f"{INCOMING}/{self.sha256}{ending}"

    @property
    def path_in_pods(self) -> str:
        """The file's path in the pods."""
        return f"{DATA_MOUNT}/{self.target}"


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
    program_image: ProgramImage | None = None
    ttl_seconds: int | None = None


def read_run(
    reader: Reader,
    stack: str,
    kinds: Kinds,
    devices: Devices,
    bundle: BundleSettings | None,
    limits: LimitSettings,
    made: PlatformQueue,
    delivery: PlatformDelivery,
    demands: PodDemands,
) -> RunSettings | None:
    """Read every key of a run; None if the run's configuration is wrong.

    Args:
        reader: gives the values and collects the problems with them.
        stack: name of the stack, which is the run's name unless `runName` is set.
        kinds: the registries of kinds.
        devices: the devices of the platform. The accelerator decides about device and backend.
        bundle: the bundle from which texts are taken; None if there is none.
        limits: the time limits.
        made: the queue that the platform makes.
        delivery: how the platform of another stack delivers images.
        demands: what all pods of the stack have.
    """
    chosen = read_kind(reader, "topology", "topologyOptions", kinds.workloads)
    compute = read_compute(reader, chosen, kinds.workloads[chosen.name], devices)
    verify = reader.choice("verify", ("never", "before", "after"))
    # A wrong name of the stack has a message of its own, and the run's name gets no second one.
    stack_name = stack if reader.are_right(NAME_OF_STACK) else "unknown"
    run_name = _name(reader, "runName", f"({NAME_PATTERN})?") or stack_name
    config, dataset_file, tokenizer_file, files = None, None, None, dict[str, bytes]()
    image: ProgramImage | None = None
    if is_set(reader):
        if program := read_program(reader, run_name, kinds.deliveries, delivery):
            config, files, image = program.config, dict(program.files), program.image
            check_launcher(reader, config.program, compute.world)
    else:
        config, dataset_file, tokenizer_file = _read_config(
            reader, run_name, devices.accelerator, bundle, smoke_test=verify == "before"
        )
    instance = reader.text(
        "instance",
        pattern=_INSTANCE,
        form="a name of at most 30 lower-case letters, digits and '-'",
        example="second",
    )
    if len(instance) > (most := kinds.workloads[chosen.name].longest_instance):
        reader.problem(
            "instance",
            instance,
            f"has {len(instance)} characters, and the names of the pods of topology {chosen.name} "
            f"have room for {most}",
            "Shorten it",
        )
    network = read_network(reader, kinds.networks)
    several_pods = kinds.workloads[chosen.name].several_pods
    check_use_of_network(reader, kinds.networks[network.name], compute, several_pods=several_pods)
    pods = read_pods(reader, devices.accelerator, demands)
    metrics_port = read_metrics_port(reader)
    when_busy = reader.choice("whenBusy", ("replace", "wait", "refuse"))
    queue = read_queue(reader, chosen, kinds.workloads, when_busy)
    queue_levels = check_placement(reader, pods, queue, made)
    ttl_seconds = read_ttl(reader, chosen, kinds.workloads)
    if config is None:
        return None
    if not config.has_program:
        check_time_for_dataset(reader, config.dataset, limits)
    check_transport_policy(
        reader, config.train.transport_policy, kinds.networks[network.name], pods
    )
    check_nodes_min(reader, config.train.nodes_min, compute, kinds.workloads[chosen.name])
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
        dataset_file=dataset_file,
        bpe_file=_bundled(bundle, TOKENIZER, GPT2) if bundle and needs_bpe else None,
        tokenizer_file=tokenizer_file,
        metrics_port=metrics_port,
        program_files=files,
        program_image=image,
        ttl_seconds=ttl_seconds,
    )


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
        file = _bundled(bundle, DATASET, config.dataset.sha256)
        if file:
            dataset = replace(dataset, url=None, file=file.path_in_pods, sha256=file.sha256)
            config, problems = build(dataset)
    reader.problems += problems
    return config, file, tokenizer_file


def _read_dataset(
    reader: Reader,
) -> tuple[DatasetChoice, DatasetFile | None, DatasetFile | None]:
    """Return the settings of the data set, and this machine's files with the text and tokenizer."""
    file_text, url = reader.text("datasetFile"), _dataset_url(reader)
    sha256, files = reader.checksum("datasetSha256"), dataset_files(reader)
    _check_sources(reader, file_text, url, sha256, several=bool(files))
    file = _local_file(reader, "datasetFile", file_text) if file_text else None
    tokenizer, tokenizer_file = _tokenizer(reader), None
    if tokenizer.endswith(".json"):
        tokenizer_file = _local_file(reader, "datasetTokenizer", tokenizer)
    choice = DatasetChoice(
        name=_name(reader, "datasetName", f"({NAME_PATTERN})?") or None,
        url=url or None,
        file=file.path_in_pods if file else None,
        sha256=sha256 or (file.sha256 if file else None),
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
    if url and not sha256:
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


def _bundled(bundle: BundleSettings, purpose: str, version: str) -> DatasetFile | None:
    entries = bundle.manifest.of(purpose, version)
    if not entries:
        return None
    path = bundle.path / entries[0].name
    return DatasetFile(path, entries[0].sha256, path.stat().st_size)


def _local_file(reader: Reader, key: str, text: str) -> DatasetFile | None:
    """Return a file of this machine with the checksum of its content; None if it cannot be read.

    `prepare` compares the content with `datasetSha256`.
    """
    path = local_path(text)
    try:
        return DatasetFile(path, file_checksum(path), path.stat().st_size)
    except OSError as error:
        hint = "Set the path of a file on this machine"
        reader.problem(key, str(path), f"it cannot be read ({error.strerror})", hint)
        return None
