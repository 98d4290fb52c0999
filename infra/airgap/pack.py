"""Downloads or builds everything that a stack needs, and puts it into a bundle."""

import hashlib
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from infra.airgap.download import download, download_text, listed_sha256, without_credentials
from infra.airgap.manifest import Manifest, sha256_of
from infra.airgap.needs import (
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
from infra.airgap.operator_images import operator_images
from infra.airgap.save_image import choose_tool, save_image
from infra.airgap.writer import BundleWriter, locked
from infra.command_line import Say
from infra.image.dependencies import Sources
from infra.image.ensure import cached_layout
from infra.settings import (
    PROJECT_ROOT,
    GpuOperatorSettings,
    ImageSettings,
    PlatformSettings,
    RunSettings,
    Settings,
)

K3S_RELEASES = "https://github.com/k3s-io/k3s/releases/download"
K3S_SOURCES = "https://raw.githubusercontent.com/k3s-io/k3s"
REQUIREMENTS = "requirements.lock"  # names each package with its version and its checksums
OPERATOR = "gpu-operator"  # the chart's name
INSTALLER_SUMS = "install.sh.sha256sum"
PULUMI_RELEASES = "https://github.com/pulumi"
# The merge table of GPT-2's tokenizer, in tiktoken's own format. The address and the checksum are
# those in tiktoken_ext/openai_public.py.
BPE_URL = "https://openaipublic.blob.core.windows.net/encodings/r50k_base.tiktoken"
BPE_SHA256 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"


@dataclass(frozen=True)
class PackOptions:
    """What to pack, and where.

    Args:
        settings: settings of the stack.
        output: folder of the bundle.
        left_out: parts that are not packed, out of `needs.PARTS`.
        cache: folder that keeps built images.
    """

    settings: Settings
    output: Path
    left_out: tuple[str, ...]
    cache: Path


def pack(options: PackOptions, say: Say) -> Manifest:
    """Make the folder hold what the stack needs. Files that are already there and intact are kept.

    A stack that runs on another stack's platform only needs its text and its tokenizer. The rest is
    in the bundle of the platform's stack.

    Returns:
        The list of the bundle's files.

    Raises:
        DownloadError, RuntimeError: a file could not be downloaded, or an image could not be built
            or saved. Files that are complete stay, so that the next attempt continues.
        ValueError: these settings or this machine cannot be used. The text says what to do.
    """
    platform, run, left_out = options.settings.platform, options.settings.run, options.left_out
    with locked(options.output):
        writer = BundleWriter(options.output, architecture(), say)
        if platform is None:
            _refuse_folder_of_a_platform(writer, options.settings.platform_stack)
        else:
            _add_cluster(writer, platform, left_out)
        if "dataset" not in left_out and run and not run.config.has_program:
            _add_data(writer, run)
        if platform and "trainer-image" not in left_out:
            _add_trainer_image(writer, platform.image, options.cache, say)
        if platform and "wheels" not in left_out:
            _add_wheels(writer)
        if platform and "pulumi" not in left_out:
            _add_pulumi(writer)
        return writer.finish(left_out)


def architecture() -> str:
    """Return the architecture of this machine, by the name that k3s and Go use.

    Raises:
        ValueError: k3s is not published for it.
    """
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    if platform.machine() not in names:
        raise ValueError(
            f"a bundle cannot be packed on this machine: k3s is not published for its architecture "
            f"{platform.machine()}. Pack on one of {', '.join(names)}."
        )
    return names[platform.machine()]


def _refuse_folder_of_a_platform(writer: BundleWriter, platform_stack: str) -> None:
    """Refuse a folder with a platform's bundle.

    Packing removes files that the stack does not need, and would remove all that the platform
    needs.
    """
    if others := writer.purposes - {DATASET, TOKENIZER}:
        raise ValueError(
            f"{writer.folder} holds the bundle of a platform ({', '.join(sorted(others))}), and "
            f"this stack, which runs on the platform of stack {platform_stack!r}, only needs "
            "a text. Choose another folder: `make bundle STACK=... BUNDLE=FOLDER`"
        )


def _add_cluster(
    writer: BundleWriter, platform: PlatformSettings, left_out: tuple[str, ...]
) -> None:
    operator = platform.gpu_operator if "gpu-operator" not in left_out else None
    if operator and operator.driver:
        raise ValueError(
            "gpuOperatorDriver: 'true' cannot be used: the operator's driver container downloads "
            "packages when it starts, and a bundle is for hosts without a network. Set "
            "gpuOperatorDriver: false and install the driver on the host."
        )
    if platform.cluster.kind == "k3s":
        _add_k3s(writer, platform)
    if operator:
        _add_operator(writer, operator, images="gpu-operator-images" not in left_out)


def _add_k3s(writer: BundleWriter, settings: PlatformSettings) -> None:
    k3s, arch = settings.cluster.k3s, architecture()
    if k3s.mirror.startswith("http://"):
        raise ValueError(
            f"k3sMirror: {k3s.mirror!r} cannot be used for a bundle: no setting holds a checksum "
            "of the image archive, so that http would not be safe. Set an https address."
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
            text = (writer.folder / "k3s" / listed).read_text()
            (scratch / "k3s").mkdir()
            expected = given or listed_sha256(text, name, f"{base}/{listed}")
            download(f"{base}/{name}", scratch / "k3s" / name, expected)
            return base

        writer.add(purpose, k3s.version, fill)

    writer.add(K3S_SUMS, k3s.version, lists)
    put(K3S, binary, release, sums, k3s.sha256)
    put(K3S_IMAGES, images, release, sums)
    put(INSTALLER, "install.sh", sources, INSTALLER_SUMS, k3s.installer_sha256)


def _add_operator(writer: BundleWriter, operator: GpuOperatorSettings, *, images: bool) -> None:
    file, repository = operator.chart.file, operator.chart.repository
    is_here = file is not None and file.is_file()

    def fill(scratch: Path) -> str:
        name = f"{OPERATOR}-{operator.version}.tgz"
        (scratch / "charts").mkdir()
        if file is not None and is_here:
            shutil.copyfile(file, scratch / "charts" / name)
            return str(file)
        if not repository:
            raise ValueError(
                f"gpuOperatorChart: {operator.chart.chart!r} cannot be used for a bundle: it is "
                "neither the address of a chart repository nor a packed chart on this machine. "
                "Set one of these; helm pull and helm package make packed charts (.tgz)."
            )
        index = f"{repository}/index.yaml"
        versions = _listed(index, download_text(index, scratch / "index"))
        found = [entry for entry in versions if entry["version"] == operator.version]
        if not found:
            raise ValueError(
                f"gpuOperatorVersion: {operator.version!r} cannot be used: {index} has no such "
                "version. Set one that it has."
            )
        if "digest" not in found[0]:
            raise ValueError(
                f"gpuOperatorChart: {operator.chart.repository!r} cannot be used for a bundle: "
                f"{index} has no checksum (digest) of version {operator.version}. Download the "
                "chart by `helm pull`, and set the path of that file."
            )
        url = str(found[0]["urls"][0])
        url = url if "://" in url else f"{repository}/{url}"
        download(url, scratch / "charts" / name, str(found[0]["digest"]).removeprefix("sha256:"))
        return url

    # A chart file of the user may change without a new version.
    sha256 = sha256_of(file) if file is not None and is_here else ""
    (chart,) = writer.add(CHART, operator.version, fill, sha256)
    if not images:
        return
    wanted = operator_images(
        writer.folder / chart.name, toolkit=operator.toolkit, dcgm_exporter=operator.dcgm_exporter
    )

    def save(image: str) -> None:
        def fill(scratch: Path) -> str:
            (scratch / "images").mkdir()
            file = re.sub(r"[^\w.-]+", "_", image)
            save_image(choose_tool(), image, scratch / "images" / f"{file}.tar", architecture())
            return image

        writer.add(OPERATOR_IMAGE, image, fill)

    for image in wanted:
        save(image)


def _listed(index: str, text: str) -> list[dict[str, Any]]:
    """Return the entries of the GPU Operator in the index of a chart repository."""
    try:
        return cast(list[dict[str, Any]], yaml.load(text, yaml.CSafeLoader)["entries"][OPERATOR])
    except (yaml.YAMLError, KeyError, TypeError):
        raise ValueError(
            f"gpuOperatorChart: {index} is not the index of a chart repository that has the chart "
            f"{OPERATOR}. Set the address of one that has it, or the path of the packed chart."
        ) from None


def _add_data(writer: BundleWriter, settings: RunSettings) -> None:
    dataset = settings.config.dataset
    if dataset.files:
        raise ValueError(
            f"the data set {dataset.name} has {len(dataset.files)} files, and a bundle holds one "
            "text; pack it with OPTIONS='--without dataset' and bring the files to the machine "
            "in another way, or set datasetFile"
        )

    def text(scratch: Path) -> str:
        (scratch / "dataset").mkdir()
        target = scratch / "dataset" / f"{dataset.sha256}.txt"
        if settings.dataset_file:
            shutil.copyfile(settings.dataset_file.path, target)
            return settings.dataset_file.path.name
        assert dataset.url is not None
        download(dataset.url, target, dataset.sha256 or "")
        return without_credentials(dataset.url)

    def merge_table(scratch: Path) -> str:
        (scratch / "tokenizer").mkdir()
        download(BPE_URL, scratch / "tokenizer" / "gpt2.tiktoken", BPE_SHA256)
        return BPE_URL

    assert dataset.sha256 is not None  # The check of the settings has made sure of that.
    writer.add(DATASET, dataset.sha256, text)
    if dataset.tokenizer == GPT2:
        writer.add(TOKENIZER, GPT2, merge_table)


def _add_trainer_image(writer: BundleWriter, image: ImageSettings, cache: Path, say: Say) -> None:
    def fill(scratch: Path) -> str:
        sources = Sources(PROJECT_ROOT, cache, image.builder)
        layout = cached_layout(image.plan, sources, say)
        shutil.copytree(layout, scratch / layout_name(image.plan.deps_hash))
        return image.base

    writer.add(TRAINER_IMAGE, image.plan.deps_hash, fill)


def _add_wheels(writer: BundleWriter) -> None:
    """Add Python packages for `pip install --no-index --find-links` on the machine with Pulumi.

    pip refuses a file whose checksum is not in the lock file.
    """
    requirements = PROJECT_ROOT / REQUIREMENTS

    def fill(scratch: Path) -> str:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
        command += ["--disable-pip-version-check", "--dest", str(scratch / "wheels")]
        done = subprocess.run(
            [*command, "--require-hashes", "--requirement", str(requirements)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"pip download failed: {done.stderr.strip()[-1000:]}")
        return REQUIREMENTS

    key = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    writer.add(WHEELS, f"py{sys.version_info[0]}.{sys.version_info[1]}-{key}", fill)


def _add_pulumi(writer: BundleWriter) -> None:
    """Add Pulumi's engine and its plugins, in the versions that the Python packages need."""
    text = (PROJECT_ROOT / REQUIREMENTS).read_text()
    pins = dict(re.findall(r"^([\w-]+)==([\w.]+)", text, re.MULTILINE))
    arch = architecture()
    engine = f"pulumi-v{{}}-linux-{'x64' if arch == 'amd64' else arch}.tar.gz"
    _add_release(writer, "pulumi", pins["pulumi"], engine, "pulumi-{}-checksums.txt")
    for project in ("pulumi-kubernetes", "pulumi-command"):
        plugin = f"{project.replace('pulumi-', 'pulumi-resource-')}-v{{}}-linux-{arch}.tar.gz"
        _add_release(writer, project, pins[project], plugin, f"{project}_{{}}_checksums.txt")


def _add_release(
    writer: BundleWriter, project: str, version: str, file: str, checksums: str
) -> None:
    def fill(scratch: Path) -> str:
        base = f"{PULUMI_RELEASES}/{project}/releases/download/v{version}"
        name, sums = file.format(version), f"{base}/{checksums.format(version)}"
        (scratch / "pulumi").mkdir()
        expected = listed_sha256(download_text(sums, scratch / "sums"), name, sums)
        download(f"{base}/{name}", scratch / "pulumi" / name, expected)
        return base

    writer.add(PULUMI, f"{project} {version}", fill)
