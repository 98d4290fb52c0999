"""Packs what a stack needs, from the places that the stack's settings name."""

import hashlib
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from infra.bundle.download import download, downloaded_text, listed_sha256, shown
from infra.bundle.manifest import Manifest
from infra.bundle.needs import (
    CHART,
    DATASET,
    GPT2,
    INSTALLER,
    K3S,
    K3S_IMAGES,
    K3S_SUMS,
    OPERATOR_IMAGE,
    PULUMI,
    TOKENIZER,
    TRAINER_IMAGE,
    WHEELS,
    layout_name,
)
from infra.bundle.operator_images import operator_images
from infra.bundle.save_image import choose_tool, save_image
from infra.bundle.shelf import Say, Shelf, locked
from infra.gpu_operator import CHART_REPOSITORY
from infra.imaging.ensure import cached_layout
from infra.settings import PROJECT_ROOT, GpuOperatorSettings, Settings

K3S_RELEASES = "https://github.com/k3s-io/k3s/releases/download"
K3S_SOURCES = "https://raw.githubusercontent.com/k3s-io/k3s"
REQUIREMENTS = "requirements.txt"
INSTALLER_SUMS = "install.sh.sha256sum"
PULUMI_RELEASES = "https://github.com/pulumi"
# GPT-2's ranks in tiktoken's own form; address and checksum as in tiktoken_ext/openai_public.py.
RANKS_URL = "https://openaipublic.blob.core.windows.net/encodings/r50k_base.tiktoken"
RANKS_SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"


@dataclass(frozen=True)
class Order:
    """What to pack where; `cache` keeps built images."""

    settings: Settings
    output: Path
    left_out: tuple[str, ...]
    cache: Path


def pack(order: Order, say: Say) -> Manifest:
    """Bring the folder to what the stack needs; only what is missing or damaged is fetched.

    Raises:
        DownloadError, RuntimeError: something could not be had. What is there stays: pack again.
        ValueError: this machine or these settings do not allow it; says what does.
    """
    settings, left_out = order.settings, order.left_out
    if settings.gpu_operator and settings.gpu_operator.driver and "gpu-operator" not in left_out:
        raise ValueError(
            "gpuOperatorDriver: true is not allowed with a bundle; allowed: false, with the "
            "driver on the host: the operator's driver container fetches packages as it starts"
        )
    with locked(order.output):
        shelf = Shelf(order.output, architecture(), say)
        if settings.cluster.kind == "k3s":
            _put_k3s(shelf, settings)
        if settings.gpu_operator and "gpu-operator" not in left_out:
            _put_operator(
                shelf, settings.gpu_operator, images="gpu-operator-images" not in left_out
            )
        if "dataset" not in left_out:
            _put_data(shelf, settings)
        if "trainer-image" not in left_out:
            _put_trainer_image(shelf, order, say)
        if "wheels" not in left_out:
            _put_wheels(shelf)
        if "pulumi" not in left_out:
            _put_pulumi(shelf)
        return shelf.finish(left_out)


def architecture() -> str:
    """Of this machine, as k3s and Go name it."""
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    if platform.machine() not in names:
        raise ValueError(f"no k3s for {platform.machine()}; there is one for {', '.join(names)}")
    return names[platform.machine()]


def _put_k3s(shelf: Shelf, settings: Settings) -> None:
    k3s, arch = settings.cluster.k3s, architecture()
    if k3s.mirror.startswith("http://"):
        raise ValueError(
            "k3sMirror: a bundle needs an https address, as its image archive has no checksum "
            "among the settings"
        )
    tag = k3s.version.replace("+", "%2B")
    release = f"{k3s.mirror or K3S_RELEASES}/{tag}"
    sources = f"{k3s.mirror or K3S_SOURCES}/{tag}"
    binary = "k3s" if arch == "amd64" else f"k3s-{arch}"
    images = f"k3s-airgap-images-{arch}.tar.zst"
    sums = f"sha256sum-{arch}.txt"

    def lists(scratch: Path) -> str:
        (scratch / "k3s").mkdir()
        download(f"{release}/{sums}", scratch / "k3s" / sums)
        download(f"{sources}/{INSTALLER_SUMS}", scratch / "k3s" / INSTALLER_SUMS)
        return release

    def put(purpose: str, name: str, base: str, listed: str, given: str = "") -> None:
        def fill(scratch: Path) -> str:
            text = (shelf.folder / "k3s" / listed).read_text()
            (scratch / "k3s").mkdir()
            expected = given or listed_sha256(text, name, f"{base}/{listed}")
            download(f"{base}/{name}", scratch / "k3s" / name, expected)
            return base

        shelf.put(purpose, k3s.version, fill)

    shelf.put(K3S_SUMS, k3s.version, lists)
    put(K3S, binary, release, sums, k3s.sha256)
    put(K3S_IMAGES, images, release, sums)
    put(INSTALLER, "install.sh", sources, INSTALLER_SUMS, k3s.installer_sha256)


def _put_operator(shelf: Shelf, operator: GpuOperatorSettings, *, images: bool) -> None:
    def fill(scratch: Path) -> str:
        index = f"{CHART_REPOSITORY}/index.yaml"
        listed = yaml.load(downloaded_text(index, scratch / "index"), yaml.CSafeLoader)
        versions = listed["entries"]["gpu-operator"]
        found = [entry for entry in versions if entry["version"] == operator.version]
        if not found:
            raise ValueError(f"gpuOperatorVersion: {index} has no {operator.version}")
        url = str(found[0]["urls"][0])
        url = url if "://" in url else f"{CHART_REPOSITORY}/{url}"
        (scratch / "charts").mkdir()
        name = f"gpu-operator-{operator.version}.tgz"
        download(url, scratch / "charts" / name, str(found[0]["digest"]).removeprefix("sha256:"))
        return url

    (chart,) = shelf.put(CHART, operator.version, fill)
    if not images:
        return
    wanted = operator_images(
        shelf.folder / chart.name, toolkit=operator.toolkit, dcgm_exporter=operator.dcgm_exporter
    )

    def save(image: str) -> None:
        def fill(scratch: Path) -> str:
            (scratch / "images").mkdir()
            file = re.sub(r"[^\w.-]+", "_", image)
            save_image(choose_tool(), image, scratch / "images" / f"{file}.tar", architecture())
            return image

        shelf.put(OPERATOR_IMAGE, image, fill)

    for image in wanted:
        save(image)


def _put_data(shelf: Shelf, settings: Settings) -> None:
    dataset = settings.run.dataset

    def text(scratch: Path) -> str:
        (scratch / "dataset").mkdir()
        target = scratch / "dataset" / f"{dataset.sha256}.txt"
        if settings.dataset_file:
            shutil.copyfile(settings.dataset_file.path, target)
            return settings.dataset_file.path.name
        assert dataset.url is not None
        download(dataset.url, target, dataset.sha256 or "")
        return shown(dataset.url)

    def ranks(scratch: Path) -> str:
        (scratch / "tokenizer").mkdir()
        download(RANKS_URL, scratch / "tokenizer" / "gpt2.tiktoken", RANKS_SHA256)
        return RANKS_URL

    assert dataset.sha256 is not None  # of a file, a preset, or a setting that must be there
    shelf.put(DATASET, dataset.sha256, text)
    if dataset.tokenizer == GPT2:
        shelf.put(TOKENIZER, GPT2, ranks)


def _put_trainer_image(shelf: Shelf, order: Order, say: Say) -> None:
    image = order.settings.image

    def fill(scratch: Path) -> str:
        layout = cached_layout(image.plan, PROJECT_ROOT, order.cache, image.builder, say)
        shutil.copytree(layout, scratch / layout_name(image.plan.deps_hash))
        return image.base

    shelf.put(TRAINER_IMAGE, image.plan.deps_hash, fill)


def _put_wheels(shelf: Shelf) -> None:
    """For `pip install --no-index --find-links` on the machine that runs Pulumi."""
    requirements = PROJECT_ROOT / REQUIREMENTS

    def fill(scratch: Path) -> str:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
        command += ["--disable-pip-version-check", "--dest", str(scratch / "wheels")]
        done = subprocess.run(
            [*command, "--requirement", str(requirements)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"pip download failed: {done.stderr.strip()[-1000:]}")
        return REQUIREMENTS

    key = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    shelf.put(WHEELS, f"py{sys.version_info[0]}.{sys.version_info[1]}-{key}", fill)


def _put_pulumi(shelf: Shelf) -> None:
    """The engine and the plugins of the versions that the wheels are for."""
    text = (PROJECT_ROOT / REQUIREMENTS).read_text()
    pins = dict(re.findall(r"^([\w-]+)==([\w.]+)", text, re.MULTILINE))
    arch = architecture()
    engine = f"pulumi-v{{}}-linux-{'x64' if arch == 'amd64' else arch}.tar.gz"
    _put_release(shelf, "pulumi", pins["pulumi"], engine, "pulumi-{}-checksums.txt")
    for project in ("pulumi-kubernetes", "pulumi-command"):
        plugin = f"{project.replace('pulumi-', 'pulumi-resource-')}-v{{}}-linux-{arch}.tar.gz"
        _put_release(shelf, project, pins[project], plugin, f"{project}_{{}}_checksums.txt")


def _put_release(shelf: Shelf, project: str, version: str, file: str, checksums: str) -> None:
    def fill(scratch: Path) -> str:
        base = f"{PULUMI_RELEASES}/{project}/releases/download/v{version}"
        name, sums = file.format(version), f"{base}/{checksums.format(version)}"
        (scratch / "pulumi").mkdir()
        expected = listed_sha256(downloaded_text(sums, scratch / "sums"), name, sums)
        download(f"{base}/{name}", scratch / "pulumi" / name, expected)
        return base

    shelf.put(PULUMI, f"{project} {version}", fill)
