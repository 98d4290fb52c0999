"""`pack` makes the bundle of a whole stack from a web server on the loopback. skopeo is a stand-in,
pip is real.
"""

import hashlib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from infra.airgap import pack as packing
from infra.airgap.__main__ import main
from infra.airgap.download import DownloadError
from infra.airgap.manifest import MANIFEST, damage, read_manifest
from infra.airgap.pack import PackOptions, architecture, pack
from infra.airgap.writer import UNFINISHED
from infra.image.dependencies import layout_folder
from infra.image.platforms import this_machine
from infra.kinds import KINDS
from infra.settings import Devices, PlatformForRuns, Settings, parse_settings
from tests.unit.airgap.charts import VALUES, write_chart
from tests.unit.airgap.web import Web, serving
from tests.unit.image.layouts import tiny_image, write_layout
from tests.unit.stacks import TEXT, files_of_this_machine, raw_settings

SKOPEO = """#!/bin/sh
[ "$1" != --version ] || exit 0
echo "$*" >>"$SKOPEO_CALLS"
for word in "$@"; do case $word in
  docker-archive:*) rest=${word#docker-archive:}; echo "image $word" >"${rest%%:*}" ;;
esac; done
"""
PINS = {"pulumi": "3.1.0", "pulumi-kubernetes": "4.2.0", "pulumi-command": "1.3.0"}
MERGE_TABLE = b"IQ== 0\n"


def wheel(folder: Path, name: str, version: str) -> str:
    """Make the smallest wheel that pip accepts; return its sha256."""
    stem = f"{name.replace('-', '_')}-{version}"
    file = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        archive.writestr(f"{stem}.dist-info/METADATA", about)
        tags = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{stem}.dist-info/WHEEL", tags)
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """Yield a server with everything that is downloaded, beside a project and an index of
    wheels.
    """
    monkeypatch.setattr("infra.airgap.download.time.sleep", lambda _: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    project, wheels, programs = (tmp_path / name for name in ("project", "wheels", "programs"))
    for folder in (project, wheels, programs):
        folder.mkdir()
    locked = [f"{k}=={v} --hash=sha256:{wheel(wheels, k, v)}" for k, v in PINS.items()]
    (project / "requirements.lock").write_text("\n".join(locked))
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
        web.files = {"/index.yaml": index, "/ranks": MERGE_TABLE, "/text": TEXT.encode()}
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
        monkeypatch.setattr(packing, "PULUMI_RELEASES", web.url)
        monkeypatch.setattr(packing, "PROJECT_ROOT", project)
        monkeypatch.setattr(packing, "BPE_URL", f"{web.url}/ranks")
        monkeypatch.setattr(packing, "BPE_SHA256", hashlib.sha256(MERGE_TABLE).hexdigest())
        yield web


def settings(web: Web, tmp_path: Path, **changes: object) -> Settings:
    """Return settings with GPUs in an existing cluster. They need all parts but k3s, which
    tests/node packs from a mirror.
    """
    given = {
        **files_of_this_machine("sandbox", tmp_path),
        "datasetFile": "",
        "datasetUrl": f"{web.url}/text",
        "datasetSha256": hashlib.sha256(TEXT.encode()).hexdigest(),
        "datasetTokenizer": "gpt2",
        "accelerator": "gpu",
        "processesPerPod": 1,
        "gpuOperatorChart": web.url,
        "gpuOperator": "true",
        **changes,
    }
    return parse_settings(raw_settings("sandbox", given), (), "sandbox", KINDS)


@pytest.fixture
def options(web: Web, tmp_path: Path) -> PackOptions:
    """Return what `pack` is given, with the trainer's image in the cache."""
    stack = settings(web, tmp_path)
    cache = tmp_path / "cache"
    plan = stack.own_platform.image.plan
    write_layout(layout_folder(plan, cache, this_machine()), tiny_image())
    return PackOptions(stack, tmp_path / "bundle", (), cache)


def calls(tmp_path: Path) -> list[str]:
    """Return the calls of skopeo."""
    return (tmp_path / "calls").read_text().splitlines()


def test_bundle_holds_all_that_the_stack_needs(
    web: Web, options: PackOptions, tmp_path: Path
) -> None:
    """A bundle has all files that its stack needs, each with its purpose and its checksum."""
    said: list[str] = []
    manifest = pack(options, said.append)
    assert read_manifest(options.output) == replace(manifest, files=tuple(sorted(manifest.files)))
    assert damage(options.output, manifest.files) == []
    there = {entry.purpose: entry for entry in manifest.files}
    assert set(there) == {
        *("gpu-operator-chart", "gpu-operator-image", "dataset", "tokenizer"),
        *("trainer-image", "wheels", "pulumi"),
    }
    assert len(manifest.of("wheels")) == len(manifest.of("pulumi")) == 3
    images = {entry.version for entry in manifest.of("gpu-operator-image")}
    assert "nvcr.io/nvidia/k8s-device-plugin:v0.19.0" in images
    assert len(calls(tmp_path)) == len(images)
    layout = options.output / f"images/trainer-{options.settings.own_platform.image.plan.deps_hash}"
    assert {entry.name for entry in manifest.of("trainer-image")} == {
        str(path.relative_to(options.output)) for path in layout.rglob("*") if path.is_file()
    }


def test_second_time_nothing_is_fetched_and_the_manifest_is_the_same(
    web: Web, options: PackOptions, tmp_path: Path
) -> None:
    """A second `pack` downloads nothing, and the list of files is the same."""
    pack(options, print)
    text, asked, saved = (
        (options.output / MANIFEST).read_bytes(),
        list(web.requests),
        calls(tmp_path),
    )
    pack(options, print)
    assert (options.output / MANIFEST).read_bytes() == text
    assert web.requests == asked
    assert calls(tmp_path) == saved


def test_damaged_file_alone_is_fetched_again(web: Web, options: PackOptions) -> None:
    pack(options, print)
    text, asked = (options.output / MANIFEST).read_bytes(), len(web.requests)
    (options.output / "tokenizer/gpt2.tiktoken").write_bytes(b"damage")
    pack(options, print)
    assert web.requests[asked:] == ["/ranks"]
    assert (options.output / MANIFEST).read_bytes() == text


def test_broken_off_packing_leaves_no_manifest_and_the_next_goes_on(
    web: Web, options: PackOptions
) -> None:
    """A `pack` that breaks off leaves no list of files, so the folder is no bundle, and the next
    one goes on with the files that are there.
    """
    text = web.files.pop("/text")
    with pytest.raises(DownloadError, match="/text: 404"):
        pack(options, print)
    assert not (options.output / MANIFEST).exists()
    assert (options.output / UNFINISHED).exists()
    web.files["/text"], asked = text, len(web.requests)
    pack(options, print)
    assert "/index.yaml" not in web.requests[asked:]
    assert web.requests[asked] == "/text"
    assert not (options.output / UNFINISHED).exists()


def test_another_version_takes_the_place_of_the_old_one(
    web: Web, options: PackOptions, tmp_path: Path
) -> None:
    """Another version of the chart replaces the former one, and only the chart is downloaded."""
    pack(options, print)
    asked = len(web.requests)
    other = settings(web, tmp_path, gpuOperatorVersion="v26.3.2")
    manifest = pack(replace(options, settings=other), print)
    assert web.requests[asked:] == ["/index.yaml", "/charts/v26.3.2.tgz"]
    assert [path.name for path in (options.output / "charts").iterdir()] == [
        "gpu-operator-v26.3.2.tgz"
    ]
    assert [entry.version for entry in manifest.of("gpu-operator-chart")] == ["v26.3.2"]


def test_parts_can_be_left_out(web: Web, options: PackOptions) -> None:
    parts = ("dataset", "gpu-operator-images", "pulumi", "trainer-image", "wheels")
    manifest = pack(replace(options, left_out=parts), print)
    assert {entry.purpose for entry in manifest.files} == {"gpu-operator-chart"}
    assert manifest.left_out == parts


def test_machine_without_a_tool_that_saves_images_is_told_what_to_do(
    web: Web, options: PackOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/no/such/folder")
    with pytest.raises(
        ValueError, match="needs one of skopeo, crane, docker, podman, buildah"
    ) as e:
        pack(options, print)
    assert "--without gpu-operator-images" in str(e.value)


def test_wheel_that_the_lock_does_not_name_is_refused(
    web: Web, options: PackOptions, tmp_path: Path
) -> None:
    """A wheel with another checksum than in requirements.lock is refused, as where a mirror of the
    index serves another file under the same name and version.
    """
    (other,) = (tmp_path / "wheels").glob("pulumi_command-*")
    other.write_bytes(other.read_bytes() + b"more")
    with pytest.raises(RuntimeError, match=r"(?s)DO NOT MATCH THE HASHES.*pulumi-command"):
        pack(options, print)
    assert not (options.output / MANIFEST).exists()


def stack_file(folder: Path, stack: str, **changes: object) -> Path:
    """Write the file of a stack; return its path."""
    file = folder / f"Pulumi.{stack}.yaml"
    values = {f"disttrain:{key}": value for key, value in changes.items()}
    file.write_text(yaml.safe_dump({"config": values}))
    return file


def packs(file: Path, output: Path) -> int:
    """Run what `make bundle` runs, for a stack file of the test's own; return the exit status."""
    words = ("pack", "--stack", "unused", "--config-file", str(file), "--output", str(output))
    return main([*words, "--cache", str(output.parent / "cache")])


def test_run_on_another_platform_gets_its_text_and_nothing_of_the_platform(
    web: Web, tmp_path: Path
) -> None:
    """The bundle of a stack with the setting `platform` has the run's text and tokenizer, and
    nothing of the platform.
    """
    stack_file(tmp_path, "owner")
    sha256 = hashlib.sha256(TEXT.encode()).hexdigest()
    text = {"datasetUrl": f"{web.url}/text", "datasetSha256": sha256, "datasetTokenizer": "gpt2"}
    file = stack_file(tmp_path, "second", platform="organization/disttrain/owner", **text)
    assert packs(file, tmp_path / "bundle") == 0
    manifest = read_manifest(tmp_path / "bundle")
    assert {entry.purpose for entry in manifest.files} == {"dataset", "tokenizer"}
    assert web.requests == ["/text", "/ranks"]
    bundle = {"platform": "owner", "bundle": str(tmp_path / "bundle"), **text}
    platform = PlatformForRuns(Devices("gpu", 3))
    run = parse_settings(raw_settings("multipod", bundle), (), "multipod", KINDS, platform).run
    assert run
    assert run.bpe_file
    assert run.config.dataset.url is None


def test_run_needs_the_file_of_its_platforms_stack(
    web: Web, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bundle of a run cannot be made without the file of its platform's stack, and the error
    names the setting.
    """
    file = stack_file(tmp_path, "second", platform="owner")
    assert packs(file, tmp_path / "bundle") == 1
    said = capsys.readouterr().err
    assert "platform: 'owner' cannot be used: there is no" in " ".join(said.split())
    assert not (tmp_path / "bundle").exists()


def test_bundle_of_a_platform_is_not_replaced_by_that_of_a_run(
    web: Web, options: PackOptions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bundle of a run is not packed into the folder with a platform's bundle. Packing removes
    files that are not needed any more, which would be most of the platform's.
    """
    pack(options, print)
    before = read_manifest(options.output)
    stack_file(tmp_path, "owner")
    file = stack_file(tmp_path, "second", platform="owner")
    assert packs(file, options.output) == 1
    assert "holds the bundle of a platform" in " ".join(capsys.readouterr().err.split())
    assert read_manifest(options.output) == before
    assert damage(options.output, before.files) == []


def test_chart_with_another_checksum_is_refused(web: Web, options: PackOptions) -> None:
    web.files["/charts/v26.3.3.tgz"] += b"more"
    with pytest.raises(DownloadError, match=r"v26\.3\.3\.tgz: sha256 is"):
        pack(options, print)


def test_chart_of_this_machine_is_packed_as_it_is(
    web: Web, options: PackOptions, tmp_path: Path
) -> None:
    """A chart that is a file on this machine is packed as it is, without a download."""
    chart = write_chart(tmp_path / "own.tgz")
    stack = settings(web, tmp_path, gpuOperatorChart=str(chart))
    manifest = pack(replace(options, settings=stack), print)
    (entry,) = manifest.of("gpu-operator-chart")
    assert (options.output / entry.name).read_bytes() == chart.read_bytes()
    assert "/index.yaml" not in web.requests


def test_chart_of_this_machine_that_has_changed_is_packed_again(
    web: Web, options: PackOptions, tmp_path: Path
) -> None:
    """A chart on this machine that has changed is packed again, even if it has the same version.
    Without a change nothing is done.
    """
    chart = write_chart(tmp_path / "own.tgz")
    mine = replace(options, settings=settings(web, tmp_path, gpuOperatorChart=str(chart)))
    pack(mine, print)
    write_chart(chart, {**VALUES, "cdi": {"enabled": False}})
    (entry,) = pack(mine, print).of("gpu-operator-chart")
    assert (options.output / entry.name).read_bytes() == chart.read_bytes()
    asked = len(calls(tmp_path))
    pack(mine, print)
    assert len(calls(tmp_path)) == asked


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (b"<html>Sign in</html>", "is not the index of a chart repository that has the chart gpu-"),
        (b"entries: {other: []}", "is not the index of a chart repository that has the chart gpu-"),
        (
            b"entries: {gpu-operator: [{version: v26.3.3, urls: [a.tgz]}]}",
            r"has no checksum \(digest\) of version v26\.3\.3\. Download the chart by `helm pull`",
        ),
    ],
)
def test_repository_without_the_chart_or_its_checksum_is_refused(
    web: Web, options: PackOptions, index: bytes, reason: str
) -> None:
    """A repository that does not have the chart, or not its checksum, is refused with what to
    do.
    """
    web.files["/index.yaml"] = index
    with pytest.raises(ValueError, match=f"gpuOperatorChart: .*{reason}"):
        pack(options, print)


def test_chart_in_a_registry_cannot_be_packed(
    web: Web, options: PackOptions, tmp_path: Path
) -> None:
    address = "oci://registry.corp.example/gpu-operator"
    stack = settings(web, tmp_path, gpuOperatorChart=address)
    with pytest.raises(ValueError, match=f"gpuOperatorChart: '{address}' cannot be used"):
        pack(replace(options, settings=stack), print)


def test_driver_container_cannot_be_packed(web: Web, options: PackOptions, tmp_path: Path) -> None:
    """A bundle cannot be made if the operator installs the driver."""
    stack = settings(web, tmp_path, gpuOperatorDriver=True)
    with pytest.raises(ValueError, match="gpuOperatorDriver: 'true' cannot be used: "):
        pack(replace(options, settings=stack), print)


def test_bundle_of_another_architecture_is_left_alone(
    web: Web, options: PackOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle is not packed into the folder with the bundle of another architecture."""
    pack(replace(options, left_out=("gpu-operator-images", "pulumi", "wheels")), print)
    monkeypatch.setattr(packing, "architecture", lambda: "s390x")
    with pytest.raises(ValueError, match="choose another --output"):
        pack(options, print)
