"""The list of packages in an image (SBOM) is complete, and is valid by CycloneDX' own schema."""

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from infra.image.__main__ import main
from infra.image.dependencies import layout_folder
from infra.image.oci import Blob, Image, append_layer, blob
from infra.image.plan import plan_image
from infra.image.platforms import this_machine
from infra.image.sbom import sbom
from infra.image.with_code import annotations
from tests.unit.image.layouts import tar_bytes, tiny_image, write_layout

PROJECT = Path(__file__).parents[3]
STATUS = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10
Description: GNU C Library
 with a longer text: and a colon

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""
SITE = "opt/venv/lib/python3.11/site-packages"
BASE: Mapping[str, str] = {
    "usr/lib/os-release": 'PRETTY_NAME="Debian 12"\nID=debian\nVERSION_ID="12"\n',
    "var/lib/dpkg/status": STATUS,
}


def metadata(name: str, version: str, *more: str) -> dict[str, str]:
    """Return the METADATA file of an installed Python package, by its path."""
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *more, "", "A text"]
    return {f"{SITE}/{name}-{version}.dist-info/METADATA": "\n".join(lines)}


def image(*layers: Mapping[str, str], packed: bool = False) -> Image:
    """Return an image with these layers, each with its files; with `packed` they are gzipped."""
    made = tiny_image()
    blobs = [tar_bytes({k: v.encode() for k, v in files.items()}) for files in layers]
    contents = [gzip.compress(b) if packed else b for b in blobs]
    return Image(made.manifest, made.config, tuple(blob(content) for content in contents))


def document(*layers: Mapping[str, str], packed: bool = False) -> dict[str, Any]:
    """Return the list of an image with these layers, which has to be valid."""
    made = sbom("localhost/a/b:1-2", image(*layers, packed=packed))
    assert schema_errors(made) is None
    return made


def schema_errors(made: Mapping[str, Any]) -> object:
    # Imported here, because it takes 2 s and each worker of the suite imports each test file.
    """Return the errors of a list by CycloneDX' schema; None if it is valid."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(made))


def purls(made: Mapping[str, Any]) -> list[str]:
    """Return the package URLs of a list."""
    return [component["purl"] for component in made["components"]]


def licences(*lines: str) -> Any:
    """Return the licences of a Python package with these lines in its metadata."""
    (component,) = document(metadata("p", "1", *lines))["components"]
    return component.get("licenses")


def test_the_schema_check_would_see_a_wrong_document() -> None:
    assert schema_errors({"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{}]})


@pytest.mark.parametrize("packed", [False, True], ids=["tar", "gzip"])
def test_installed_packages_of_debian_and_python_are_listed_with_their_versions(
    packed: bool,
) -> None:
    made = document(BASE, metadata("typing_extensions", "4.16.0"), packed=packed)
    assert purls(made) == [
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=debian-12",
        "pkg:pypi/typing-extensions@4.16.0",
    ]
    subject = made["metadata"]["component"]
    assert (subject["name"], subject["version"]) == ("localhost/a/b", "1-2")


def test_the_same_image_gives_the_same_document() -> None:
    assert json.dumps(document(BASE)) == json.dumps(document(BASE))


def test_packages_of_images_without_dpkg_are_listed() -> None:
    """Packages of Debian are listed in an image that has no dpkg, where each has a file in
    status.d.
    """
    entry = "Package: tzdata\nVersion: 2025b\nArchitecture: all\n"
    assert purls(document({"./var/lib/dpkg/status.d/tzdata": entry})) == [
        "pkg:deb/debian/tzdata@2025b?arch=all"
    ]


def test_what_a_higher_layer_removes_or_replaces_is_not_listed() -> None:
    """A package that a higher layer removes or replaces is not listed in its former version."""
    old = metadata("gone", "1") | metadata("stays", "1")
    removed = {f"{SITE}/.wh.gone-1.dist-info": ""}
    assert purls(document(old, removed)) == ["pkg:pypi/stays@1"]
    opaque = {f"{SITE}/.wh..wh..opq": ""} | metadata("new", "1")
    assert purls(document(old, opaque)) == ["pkg:pypi/new@1"]
    newer = {"var/lib/dpkg/status": STATUS.replace("2.36-9+deb12u10", "2.41")}
    assert "libc6@2.41?" in purls(document(BASE, newer))[0]


def test_a_licence_is_what_the_metadata_states() -> None:
    """The licence of a Python package is taken from its metadata: the expression, else the short
    text, else the classifiers.
    """
    assert licences("License-Expression: MIT OR Apache-2.0", "License: old") == [
        {"expression": "MIT OR Apache-2.0"}
    ]
    assert licences("License: BSD", "Classifier: License :: OSI Approved :: MIT License") == [
        {"license": {"name": "BSD"}}
    ]
    whole = "License: Copyright\n        All rights"
    classifiers = ("Classifier: License :: OSI Approved :: MIT License", "Classifier: Topic :: X")
    assert licences(whole, *classifiers) == [{"license": {"name": "MIT License"}}]
    assert licences("License: UNKNOWN") is None


def test_an_image_of_an_unknown_kind_is_an_error_and_not_an_empty_list() -> None:
    """An image without a known list of packages, or with layers that cannot be read, is an error.
    An empty list would look as if it had no packages.
    """
    with pytest.raises(ValueError, match="localhost/a/b:1: no dpkg database"):
        sbom("localhost/a/b:1", image({"etc/alpine-release": "3.20"}))
    zstd = Image(tiny_image().manifest, tiny_image().config, (blob(b"\x28\xb5\x2f\xfd rest"),))
    with pytest.raises(ValueError, match="If it is compressed with zstd, list the image with an"):
        sbom("localhost/a/b:1", zstd)


def linked(target: str) -> Image:
    """Return an image with the metadata of a package at `target`, and with a hard link to it, as uv
    makes one from its cache.
    """
    content = next(iter(metadata("p", "1").values())).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        file = tarfile.TarInfo(target)
        file.size = len(content)
        tar.addfile(file, io.BytesIO(content))
        link = tarfile.TarInfo(f"{SITE}/p-1.dist-info/METADATA")
        link.type, link.linkname = tarfile.LNKTYPE, target
        tar.addfile(link)
    made = tiny_image()
    return Image(made.manifest, made.config, (blob(buffer.getvalue()),))


@pytest.mark.parametrize(
    "target", ["root/cache/METADATA", "./root/cache/METADATA", "opt/q-1.dist-info/METADATA"]
)
def test_hard_links_in_streamed_layers(target: str) -> None:
    """Packages are found in a layer on the node whose metadata is a hard link. Such a layer is read
    as a stream, which cannot go back to the file of the link.
    """
    here = linked(target)
    (layer,) = here.layers
    there = Image(here.manifest, here.config, (Blob(layer.digest, layer.size_bytes, None),))
    made = sbom("localhost/a/b:1", there, lambda _: nullcontext(io.BytesIO(layer.read())))
    assert purls(made) == ["pkg:pypi/p@1"]
    assert made == sbom("localhost/a/b:1", here)


@pytest.mark.parametrize(("packed", "length"), [(False, 1600), (True, 250)], ids=["tar", "gzip"])
def test_damaged_layer_is_called_damaged(packed: bool, length: int) -> None:
    """A layer that is cut off, as tar or as gzip, is called damaged. The error does not blame
    zstd.
    """
    whole = image(BASE, packed=packed)
    cut = Image(whole.manifest, whole.config, (blob(whole.layers[0].read()[:length]),))
    with pytest.raises(ValueError, match=f"{cut.layers[0].digest}: it is damaged"):
        sbom("localhost/a/b:1", cut)


def test_the_command_writes_the_list_of_what_was_built_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command writes the list of an image that is in the cache here, and fails if the image is
    neither here nor in containerd.
    """
    plan = plan_image(PROJECT, "localhost/a/b", "base:1", None)
    words = ["sbom", "--repository", "localhost/a/b", "--base-image", "base:1"]
    words += ["--cache", str(tmp_path), "--output", str(tmp_path / "sbom.json")]
    words += ["--ctr", "true"]  # a containerd without images
    assert main(words) == 1
    assert f"image: {plan.reference} is neither in containerd nor in" in capsys.readouterr().out
    write_layout(layout_folder(plan, tmp_path, this_machine()), tiny_image(b"torch", BASE))
    assert main(words) == 0
    made = json.loads((tmp_path / "sbom.json").read_text())
    assert schema_errors(made) is None
    assert made["metadata"]["component"]["version"] == plan.reference.rpartition(":")[2]
    assert len(made["components"]) == 1


def test_the_image_says_where_it_comes_from() -> None:
    """The image has annotations and labels with its version, its code and its base image, and the
    rest of its configuration stays the same.
    """
    plan = plan_image(PROJECT, "localhost/a/b", "base:1@sha256:01", "")
    made = append_layer(tiny_image(), b"layer", "test", annotations(plan, tiny_image()))
    expected = {
        "org.opencontainers.image.title": "disttrain trainer",
        "org.opencontainers.image.version": f"{plan.deps_hash}-{plan.code_hash}",
        "org.opencontainers.image.revision": plan.code_hash,
        "org.opencontainers.image.base.name": "base:1",
        "org.opencontainers.image.base.digest": "sha256:01",
    }
    assert json.loads(made.manifest.read())["annotations"] == expected
    assert json.loads(made.config.read())["config"]["Labels"] == expected
    assert json.loads(made.config.read())["config"]["User"] == "1000:1000", "all else is kept"


def test_the_base_images_digest_is_the_builders_where_the_name_has_none() -> None:
    """If the base image is named without a digest, the image has the digest that the builder noted,
    or none.
    """
    plan = plan_image(PROJECT, "localhost/a/b", "base:1", "")
    assert "org.opencontainers.image.base.digest" not in annotations(plan, tiny_image())
    noted = {"org.opencontainers.image.base.digest": "sha256:02"}
    deps = append_layer(tiny_image(), b"x", "test", noted)
    assert annotations(plan, deps)["org.opencontainers.image.base.digest"] == "sha256:02"
