"""Lists the files that a stack needs from a bundle, and finds those that the bundle lacks."""

from collections.abc import Sequence
from dataclasses import dataclass

from infra.airgap.manifest import Manifest

# The purposes of files, as the manifest names them.
K3S, INSTALLER, K3S_IMAGES, K3S_SUMS = "k3s", "k3s-installer", "k3s-images", "k3s-checksums"
CHART, OPERATOR_IMAGE = "gpu-operator-chart", "gpu-operator-image"
TRAINER_IMAGE, DATASET, TOKENIZER = "trainer-image", "dataset", "tokenizer"
WHEELS, PULUMI = "wheels", "pulumi"
GPT2 = "gpt2"  # the version of the tokenizer's merge table

# The values of `pack --without`. `pulumi up` downloads such a part, as it does without a bundle.
PARTS = ("gpu-operator", "gpu-operator-images", "trainer-image", "dataset", "wheels", "pulumi")
_PART_OF = {
    CHART: "gpu-operator",
    OPERATOR_IMAGE: "gpu-operator-images",
    TRAINER_IMAGE: "trainer-image",
    DATASET: "dataset",
    TOKENIZER: "dataset",
}


@dataclass(frozen=True)
class Need:
    """A purpose and version of which a file is needed. `key` is the setting with the version."""

    purpose: str
    version: str
    key: str


def needs_of_platform(*, k3s_version: str, chart_version: str, deps_hash: str) -> list[Need]:
    """Return what a platform needs. An empty version means that the file is not needed."""
    listed = [Need(purpose, k3s_version, "k3sVersion") for purpose in (K3S, INSTALLER, K3S_IMAGES)]
    listed += [
        Need(CHART, chart_version, "gpuOperatorVersion"),
        Need(TRAINER_IMAGE, deps_hash, "imageBase, torchIndexUrl or trainer/requirements.txt"),
    ]
    return [need for need in listed if need.version]


def needs_of_run(*, dataset_sha256: str, tokenizer: str) -> list[Need]:
    """Return what a run needs, without the image, which the platform needs.

    An empty checksum means that no text is needed.
    """
    listed = [
        Need(DATASET, dataset_sha256, "datasetSha256"),
        Need(TOKENIZER, GPT2 if tokenizer == GPT2 else "", "datasetTokenizer"),
    ]
    return [need for need in listed if need.version]


def unmet_needs(manifest: Manifest, wanted: Sequence[Need]) -> list[str]:
    """Return a text for each need that the bundle does not meet.

    Parts that were left out of the bundle on purpose are no problem.
    """
    problems: list[str] = []
    for need in wanted:
        if left_out(manifest, need.purpose) or manifest.of(need.purpose, need.version):
            continue
        other = sorted({entry.version for entry in manifest.of(need.purpose)})
        there = f"it holds {', '.join(other)}" if other else "it holds none"
        problems.append(f"{need.purpose} {need.version} ({need.key}): {there}")
    return problems


def left_out(manifest: Manifest, purpose: str) -> bool:
    """Whether the files of this purpose were left out of the bundle on purpose."""
    return _PART_OF.get(purpose) in manifest.left_out


def layout_name(deps_hash: str) -> str:
    """Return the folder in a bundle with the trainer image's dependencies as an OCI layout."""
    return f"images/trainer-{deps_hash}"
