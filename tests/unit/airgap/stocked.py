"""Makes a bundle whose files are lines of text, for tests of code that reads its list of files."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from infra.airgap.manifest import Entry, Manifest, write_manifest
from infra.kinds import KINDS
from infra.settings import parse_settings
from tests.unit.airgap.charts import write_chart
from tests.unit.image.layouts import tiny_image, write_layout
from tests.unit.stacks import raw_settings

K3S = "v1.34.2+k3s1"
CHART = "v26.3.3"
PLAIN = {
    "k3s/k3s": ("k3s", K3S),
    "k3s/install.sh": ("k3s-installer", K3S),
    "k3s/k3s-airgap-images-amd64.tar.zst": ("k3s-images", K3S),
    "tokenizer/gpt2.tiktoken": ("tokenizer", "gpt2"),
}
OPERATOR_IMAGES = (
    *("nvcr.io/nvidia/gpu-operator:v26.3.3", "nvcr.io/nvidia/k8s-device-plugin:v0.19.0"),
    *("nvcr.io/nvidia/k8s/container-toolkit:v1.19.0",),
    *(f"nvcr.io/nvidia/dcgm-exporter@sha256:{'0' * 64}",),
    *("registry.k8s.io/nfd/node-feature-discovery:v0.18.2",),
)


def stock(
    folder: Path,
    changes: Mapping[str, object] | None = None,
    without: frozenset[str] = frozenset(),
    left_out: tuple[str, ...] = (),
) -> Path:
    """Make the bundle of the stack `dev` with `changes`, without the files of some purposes."""
    stack = parse_settings(raw_settings("dev", changes), (), "dev", KINDS)
    assert stack.run is not None
    dataset = stack.run.config.dataset
    files = dict(PLAIN)
    for number, image in enumerate(OPERATOR_IMAGES):
        files[f"images/operator{number}.tar"] = ("gpu-operator-image", image)
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n")
    text, chart = f"dataset/{dataset.sha256}.txt", f"charts/gpu-operator-{CHART}.tgz"
    for name in (text, chart):
        (folder / name).parent.mkdir()
    (folder / text).write_text("text\n")
    write_chart(folder / chart)
    assert dataset.sha256
    files |= {text: ("dataset", dataset.sha256), chart: ("gpu-operator-chart", CHART)}
    deps = stack.own_platform.image.plan.deps_hash
    layout = write_layout(folder / f"images/trainer-{deps}", tiny_image())
    for path in layout.rglob("*"):
        if path.is_file():
            files[str(path.relative_to(folder))] = ("trainer-image", deps)
    entries = [entry(folder, name, *what) for name, what in files.items() if what[0] not in without]
    write_manifest(folder, Manifest("amd64", left_out, tuple(entries)))
    return folder


def entry(folder: Path, name: str, purpose: str, version: str) -> Entry:
    """Return the entry of a bundle's file in the list of files."""
    content = (folder / name).read_bytes()
    return Entry(name, purpose, version, len(content), hashlib.sha256(content).hexdigest(), "here")
