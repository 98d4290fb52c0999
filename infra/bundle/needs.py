"""What a stack needs of a bundle, and what of it a bundle lacks. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from infra.bundle.manifest import Manifest

# Purposes of files.
K3S, INSTALLER, K3S_IMAGES, K3S_SUMS = "k3s", "k3s-installer", "k3s-images", "k3s-checksums"
CHART, OPERATOR_IMAGE = "gpu-operator-chart", "gpu-operator-image"
TRAINER_IMAGE, DATASET, TOKENIZER = "trainer-image", "dataset", "tokenizer"
WHEELS, PULUMI = "wheels", "pulumi"
GPT2 = "gpt2"  # version of the tokenizer's ranks

# What `pack --without` takes; `up` gets such a part from the network, as without a bundle.
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
    """Files of a purpose, of a version; `key` is the setting that says so."""

    purpose: str
    version: str
    key: str


def needs(
    *,
    k3s_version: str,
    chart_version: str,
    deps_hash: str,
    dataset_sha256: str,
    tokenizer: str,
) -> list[Need]:
    """The list for a stack; an empty version: not needed."""
    listed = [Need(purpose, k3s_version, "k3sVersion") for purpose in (K3S, INSTALLER, K3S_IMAGES)]
    listed += [
        Need(CHART, chart_version, "gpuOperatorVersion"),
        Need(TRAINER_IMAGE, deps_hash, "imageBase, torchIndexUrl or trainer/requirements.txt"),
        Need(DATASET, dataset_sha256, "datasetSha256"),
        Need(TOKENIZER, GPT2 if tokenizer == GPT2 else "", "datasetTokenizer"),
    ]
    return [need for need in listed if need.version]


def lacks(manifest: Manifest, wanted: Sequence[Need]) -> list[str]:
    """Why the bundle does not do for the stack; empty: it does."""
    problems: list[str] = []
    for need in wanted:
        if left_out(manifest, need.purpose) or manifest.of(need.purpose, need.version):
            continue
        other = sorted({entry.version for entry in manifest.of(need.purpose)})
        there = f"it holds {', '.join(other)}" if other else "it holds none"
        problems.append(f"{need.purpose} {need.version} ({need.key}): {there}")
    return problems


def left_out(manifest: Manifest, purpose: str) -> bool:
    """Whether the bundle was packed without that, on purpose."""
    return _PART_OF.get(purpose) in manifest.left_out


def layout_name(deps_hash: str) -> str:
    """Folder of the trainer image's OCI layout in a bundle."""
    return f"images/trainer-{deps_hash}"
