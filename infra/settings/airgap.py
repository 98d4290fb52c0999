"""Reads the setting `bundle`: a folder with all files that a stack would otherwise download."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.airgap.manifest import Entry, Manifest, damage, missing_files, read_manifest
from infra.airgap.needs import (
    CHART,
    DATASET,
    INSTALLER,
    K3S,
    K3S_IMAGES,
    OPERATOR_IMAGE,
    TRAINER_IMAGE,
    layout_name,
    left_out,
    needs_of_platform,
    needs_of_run,
    unmet_needs,
)
from infra.airgap.operator_images import operator_images
from infra.kube.say import first_of
from infra.settings.cluster import ClusterSettings
from infra.settings.gpu import GpuOperatorSettings
from infra.settings.image import ImageSettings
from infra.settings.local_path import local_path
from infra.settings.reader import Reader
from trainer.config import RunConfig


@dataclass(frozen=True)
class BundleSettings:
    """A bundle on this machine. All its files exist and have the sizes that the manifest says."""

    path: Path
    manifest: Manifest

    def one(self, purpose: str) -> Entry | None:
        """The only file for a purpose; None if the bundle was packed without it."""
        found = self.manifest.of(purpose)
        assert len(found) <= 1, purpose
        return found[0] if found else None

    def file(self, purpose: str) -> Path | None:
        """Path of the file for this purpose; None if the bundle has none."""
        entry = self.one(purpose)
        return self.path / entry.name if entry else None

    def layout(self, deps_hash: str) -> Path | None:
        """Folder of the trainer image's OCI layout; None if the bundle was packed without it."""
        there = self.manifest.of(TRAINER_IMAGE, deps_hash)
        return self.path / layout_name(deps_hash) if there else None

    @property
    def images(self) -> tuple[Entry, ...]:
        """The image archives that k3s imports when it starts."""
        return (*self.manifest.of(K3S_IMAGES), *self.manifest.of(OPERATOR_IMAGE))


def read_bundle(reader: Reader) -> BundleSettings | None:
    """Read the bundle's manifest; None if there is no bundle, or if it cannot be used."""
    text = reader.text("bundle")
    sha256 = reader.checksum("bundleSha256")
    if not text:
        return None
    path = local_path(text)
    try:
        manifest = read_manifest(path, sha256)
    except ValueError as error:
        reader.problem("bundle", text, str(error), "Set a folder that `make bundle` has filled")
        return None
    if missing := missing_files(path, manifest):
        reason = f"it is not complete ({first_of(missing, 1)})"
        reader.problem("bundle", text, reason, "Copy it again from where it was packed")
        return None
    return BundleSettings(path, manifest)


def check_bundle_for_run(reader: Reader, bundle: BundleSettings, run: RunConfig) -> None:
    """Note what a run with these settings needs and the bundle lacks."""
    # The bundle needs no text if the text is a file of this machine already.
    sha256 = (run.dataset.sha256 or "") if run.dataset.url else ""
    wanted = needs_of_run(dataset_sha256=sha256, tokenizer=run.dataset.tokenizer)
    _refuse(reader, bundle, unmet_needs(bundle.manifest, wanted))
    if run.dataset.files and not left_out(bundle.manifest, DATASET):
        reader.problem(
            "bundle",
            str(bundle.path),
            f"the data set has {len(run.dataset.files)} files (datasetFiles, or those of the "
            "preset), and a bundle holds one text, so a pod would download them",
            "Set datasetFile; or, if the pods reach the addresses of the files, pack the bundle "
            "again with OPTIONS='--without dataset'",
        )


def check_bundle_for_platform(
    reader: Reader,
    bundle: BundleSettings,
    cluster: ClusterSettings,
    operator: GpuOperatorSettings | None,
    image: ImageSettings,
) -> None:
    """Note what a platform with these settings needs and the bundle lacks."""
    k3s = cluster.k3s if cluster.kind == "k3s" else None
    wanted = needs_of_platform(
        k3s_version=k3s.version if k3s else "",
        chart_version=operator.version if operator else "",
        deps_hash=image.plan.deps_hash,
    )
    problems = unmet_needs(bundle.manifest, wanted)
    if k3s:
        for key, given, purpose in (
            ("k3sSha256", k3s.sha256, K3S),
            ("k3sInstallerSha256", k3s.installer_sha256, INSTALLER),
        ):
            entry = bundle.one(purpose)
            if entry and given and entry.sha256 != given:
                problems.append(f"{entry.name}: sha256 is {entry.sha256}, {key} says {given}")
    if operator and not problems:
        problems += _operator_problems(bundle, operator)
    _refuse(reader, bundle, problems)


def _refuse(reader: Reader, bundle: BundleSettings, problems: Sequence[str]) -> None:
    for problem in problems:
        hint = "Pack it again with the settings of this stack: `make bundle`"
        reader.problem("bundle", str(bundle.path), problem, hint)


def _operator_problems(bundle: BundleSettings, operator: GpuOperatorSettings) -> list[str]:
    chart = bundle.one(CHART)
    if chart is None:
        return []
    if operator.driver:
        return ["gpuOperatorDriver must be false: the driver's container fetches packages"]
    if problems := damage(bundle.path, [chart]):
        return problems
    if left_out(bundle.manifest, OPERATOR_IMAGE):
        return []
    try:
        images = operator_images(
            bundle.path / chart.name, toolkit=operator.toolkit, dcgm_exporter=operator.dcgm_exporter
        )
    except ValueError as error:
        return [str(error)]
    there = {entry.version for entry in bundle.manifest.of(OPERATOR_IMAGE)}
    return [f"it lacks the operator's image {image}" for image in images if image not in there]
