"""`pack` of a whole stack, from a web server on loopback; skopeo is a stand-in, pip is real."""

import hashlib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from infra.bundle import pack as packing
from infra.bundle.download import DownloadError
from infra.bundle.manifest import MANIFEST, damage, read_manifest
from infra.bundle.pack import Order, architecture, pack
from infra.bundle.shelf import UNFINISHED
from infra.settings import Settings, parse_settings
from tests.unit.bundle.charts import write_chart
from tests.unit.bundle.web import Web, serving
from tests.unit.imaging.layouts import tiny_image, write_layout
from tests.unit.stacks import TEXT, files_of_this_machine, raw_settings

SKOPEO = """#!/bin/sh
[ "$1" != --version ] || exit 0
echo "$*" >>"$SKOPEO_CALLS"
for word in "$@"; do case $word in
  docker-archive:*) rest=${word#docker-archive:}; echo "image $word" >"${rest%%:*}" ;;
esac; done
"""
PINS = {"pulumi": "3.1.0", "pulumi-kubernetes": "4.2.0", "pulumi-command": "1.3.0"}
RANKS = b"IQ== 0\n"


def wheel(folder: Path, name: str, version: str) -> None:
    """The smallest that pip takes."""
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        archive.writestr(f"{stem}.dist-info/METADATA", about)
        tags = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{stem}.dist-info/WHEEL", tags)
        archive.writestr(f"{stem}.dist-info/RECORD", "")


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr("infra.bundle.download.time.sleep", lambda _: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    project, wheels, programs = (tmp_path / name for name in ("project", "wheels", "programs"))
    for folder in (project, wheels, programs):
        folder.mkdir()
    (project / "requirements.txt").write_text("".join(f"{k}=={v}\n" for k, v in PINS.items()))
    for name, version in PINS.items():
        wheel(wheels, name, version)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    (programs / "skopeo").write_text(SKOPEO)
    (programs / "skopeo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("SKOPEO_CALLS", str(tmp_path / "calls"))
    with serving() as web:
        chart = write_chart(tmp_path / "chart.tgz").read_bytes()
        versions = [
            {"version": v, "urls": [f"charts/{v}.tgz"], "digest": hashlib.sha256(chart).hexdigest()}
            for v in ("v26.3.3", "v26.3.2")
        ]
        index = yaml.safe_dump({"entries": {"gpu-operator": versions}}).encode()
        web.files = {"/index.yaml": index, "/ranks": RANKS, "/text": TEXT.encode()}
        web.files |= {f"/charts/{entry['version']}.tgz": chart for entry in versions}
        arch = architecture()
        engine = "x64" if arch == "amd64" else arch
        for name, file, sums in (
            ("pulumi", f"pulumi-v3.1.0-linux-{engine}.tar.gz", "pulumi-3.1.0-checksums.txt"),
            *(
                (
                    name,
                    f"{name.replace('i-', 'i-resource-')}-v{PINS[name]}-linux-{arch}.tar.gz",
                    f"{name}_{PINS[name]}_checksums.txt",
                )
                for name in ("pulumi-kubernetes", "pulumi-command")
            ),
        ):
            base = f"/{name}/releases/download/v{PINS[name]}"
            listed = f"{hashlib.sha256(name.encode()).hexdigest()}  {file}\n"
            web.files |= {f"{base}/{file}": name.encode(), f"{base}/{sums}": listed.encode()}
        monkeypatch.setattr(packing, "CHART_REPOSITORY", web.url)
        monkeypatch.setattr(packing, "PULUMI_RELEASES", web.url)
        monkeypatch.setattr(packing, "PROJECT_ROOT", project)
        monkeypatch.setattr(packing, "RANKS_URL", f"{web.url}/ranks")
        monkeypatch.setattr(packing, "RANKS_SHA256", hashlib.sha256(RANKS).hexdigest())
        yield web


def settings(web: Web, tmp_path: Path, **changes: object) -> Settings:
    """GPUs in a cluster that exists: all parts but k3s, which tests/node packs from a mirror."""
    given = {
        **files_of_this_machine("sandbox", tmp_path),
        "datasetFile": "",
        "datasetUrl": f"{web.url}/text",
        "datasetSha256": hashlib.sha256(TEXT.encode()).hexdigest(),
        "datasetTokenizer": "gpt2",
        "accelerator": "gpu",
        "processesPerPod": 1,
        **changes,
    }
    return parse_settings(raw_settings("sandbox", given), (), "sandbox")


@pytest.fixture
def order(web: Web, tmp_path: Path) -> Order:
    stack = settings(web, tmp_path)
    cache = tmp_path / "cache"
    write_layout(cache / "images" / f"deps-{stack.image.plan.deps_hash}", tiny_image())
    return Order(stack, tmp_path / "bundle", (), cache)


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


def test_bundle_holds_all_that_the_stack_needs(web: Web, order: Order, tmp_path: Path) -> None:
    said: list[str] = []
    manifest = pack(order, said.append)
    assert read_manifest(order.output) == replace(manifest, files=tuple(sorted(manifest.files)))
    assert damage(order.output, manifest.files) == []
    there = {entry.purpose: entry for entry in manifest.files}
    assert set(there) == {
        *("gpu-operator-chart", "gpu-operator-image", "dataset", "tokenizer"),
        *("trainer-image", "wheels", "pulumi"),
    }
    assert len(manifest.of("wheels")) == len(manifest.of("pulumi")) == 3
    images = {entry.version for entry in manifest.of("gpu-operator-image")}
    assert "nvcr.io/nvidia/k8s-device-plugin:v0.19.0" in images
    assert len(calls(tmp_path)) == len(images)
    layout = order.output / f"images/trainer-{order.settings.image.plan.deps_hash}"
    assert {entry.name for entry in manifest.of("trainer-image")} == {
        str(path.relative_to(order.output)) for path in layout.rglob("*") if path.is_file()
    }


def test_second_time_nothing_is_fetched_and_the_manifest_is_the_same(
    web: Web, order: Order, tmp_path: Path
) -> None:
    pack(order, print)
    text, asked, saved = (order.output / MANIFEST).read_bytes(), list(web.requests), calls(tmp_path)
    pack(order, print)
    assert (order.output / MANIFEST).read_bytes() == text
    assert web.requests == asked
    assert calls(tmp_path) == saved


def test_damaged_file_alone_is_fetched_again(web: Web, order: Order) -> None:
    pack(order, print)
    text, asked = (order.output / MANIFEST).read_bytes(), len(web.requests)
    (order.output / "tokenizer/gpt2.tiktoken").write_bytes(b"damage")
    pack(order, print)
    assert web.requests[asked:] == ["/ranks"]
    assert (order.output / MANIFEST).read_bytes() == text


def test_broken_off_packing_leaves_no_manifest_and_the_next_goes_on(web: Web, order: Order) -> None:
    text = web.files.pop("/text")
    with pytest.raises(DownloadError, match="/text: 404"):
        pack(order, print)
    assert not (order.output / MANIFEST).exists()
    assert (order.output / UNFINISHED).exists()
    web.files["/text"], asked = text, len(web.requests)
    pack(order, print)
    assert "/index.yaml" not in web.requests[asked:]
    assert web.requests[asked] == "/text"
    assert not (order.output / UNFINISHED).exists()


def test_another_version_takes_the_place_of_the_old_one(
    web: Web, order: Order, tmp_path: Path
) -> None:
    pack(order, print)
    asked = len(web.requests)
    other = settings(web, tmp_path, gpuOperatorVersion="v26.3.2")
    manifest = pack(replace(order, settings=other), print)
    assert web.requests[asked:] == ["/index.yaml", "/charts/v26.3.2.tgz"]
    assert [path.name for path in (order.output / "charts").iterdir()] == [
        "gpu-operator-v26.3.2.tgz"
    ]
    assert [entry.version for entry in manifest.of("gpu-operator-chart")] == ["v26.3.2"]


def test_parts_can_be_left_out(web: Web, order: Order) -> None:
    parts = ("dataset", "gpu-operator-images", "pulumi", "trainer-image", "wheels")
    manifest = pack(replace(order, left_out=parts), print)
    assert {entry.purpose for entry in manifest.files} == {"gpu-operator-chart"}
    assert manifest.left_out == parts


def test_machine_without_a_tool_that_saves_images_is_told_what_to_do(
    web: Web, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/no/such/folder")
    with pytest.raises(
        ValueError, match="needs one of skopeo, crane, docker, podman, buildah"
    ) as e:
        pack(order, print)
    assert "--without gpu-operator-images" in str(e.value)


def test_chart_with_another_checksum_is_refused(web: Web, order: Order) -> None:
    web.files["/charts/v26.3.3.tgz"] += b"more"
    with pytest.raises(DownloadError, match=r"v26\.3\.3\.tgz: sha256 is"):
        pack(order, print)


def test_driver_container_cannot_be_packed(web: Web, order: Order, tmp_path: Path) -> None:
    stack = settings(web, tmp_path, gpuOperatorDriver=True)
    with pytest.raises(ValueError, match="gpuOperatorDriver: true is not allowed with a bundle"):
        pack(replace(order, settings=stack), print)


def test_bundle_of_another_architecture_is_left_alone(
    web: Web, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(replace(order, left_out=("gpu-operator-images", "pulumi", "wheels")), print)
    monkeypatch.setattr(packing, "architecture", lambda: "s390x")
    with pytest.raises(ValueError, match="choose another --output"):
        pack(order, print)
