"""An image must be for the kind of processor of the node that runs it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from infra.image.build_context import Build
from infra.image.builders import BUILDERS, build_command
from infra.image.containerd import Containerd
from infra.image.dependencies import (
    Sources,
    build_into_cache,
    get_dependencies,
    layout_folder,
    local_dependencies,
)
from infra.image.ensure import cached_layout
from infra.image.oci import Image, as_json, blob
from infra.image.plan import ImagePlan, plan_image
from infra.image.platforms import platform_of_image, platform_of_plugins, this_machine
from tests.unit.image.layouts import tiny_image, write_layout

PLAN = ImagePlan("localhost/a/b", "base:1", None, "deps", "code", b"")
TABLE = """\
TYPE                            ID                    PLATFORMS           STATUS
io.containerd.content.v1        content               -                   ok
io.containerd.runtime.v2        task                  {}                  ok
io.containerd.grpc.v1           cri                   linux/amd64         ok
"""


def image_for(platform: str) -> Image:
    """Return a small image for this platform, such as `linux/arm64`."""
    system, _, architecture = platform.partition("/")
    image = tiny_image()
    config = json.loads(image.config.read()) | {"os": system, "architecture": architecture}
    new_config = blob(as_json(config))
    manifest = json.loads(image.manifest.read())
    manifest["config"] |= {"digest": new_config.digest, "size": new_config.size_bytes}
    return replace(image, config=new_config, manifest=blob(as_json(manifest)))


@pytest.fixture
def empty_containerd(tmp_path: Path) -> Containerd:
    """Return a containerd without images, which is a stand-in for its `ctr`."""
    (tmp_path / "ctr").write_text("#!/bin/sh\necho REF TYPE DIGEST\n")
    (tmp_path / "ctr").chmod(0o755)
    return Containerd([str(tmp_path / "ctr")])


@pytest.mark.parametrize(
    ("column", "platform"),
    [
        ("linux/amd64", "linux/amd64"),
        ("linux/arm64/v8", "linux/arm64"),
        ("linux/amd64,linux/386", "linux/amd64"),
    ],
)
def test_containerd_says_what_the_node_runs(column: str, platform: str) -> None:
    """The node's platform is read from containerd's list of plugins; it is None if the list does
    not say it.
    """
    assert platform_of_plugins(TABLE.format(column)) == platform
    assert platform_of_plugins("TYPE ID PLATFORMS STATUS\n") is None


def test_image_says_what_it_is_for() -> None:
    """The platform of an image is read from the image's configuration."""
    assert platform_of_image(tiny_image()) == this_machine()
    assert platform_of_image(image_for("linux/riscv64")) == "linux/riscv64"


@pytest.mark.parametrize("builder", BUILDERS)
def test_build_is_for_the_platform_of_the_node(builder: str, tmp_path: Path) -> None:
    """Every builder is told to build for the node's platform. Otherwise a laptop with arm64 would
    build an image that a node with amd64 cannot run.
    """
    build = Build("h/i:1", "base:1", None, "linux/arm64")
    command = build_command(builder, build, tmp_path, [], tmp_path / "layout")
    assert command[command.index("--platform") + 1] == "linux/arm64"


def test_docker_leaves_the_result_where_save_looks(tmp_path: Path) -> None:
    """docker is told to load the image that it has built, and podman is not. buildx's container
    driver would otherwise keep it to itself, where `docker save` does not find it.
    """

    def command(builder: str) -> Sequence[str]:
        return build_command(
            builder, Build("h/i:1", "b", None, "linux/amd64"), tmp_path, [], tmp_path
        )

    assert "--load" in command("docker")
    assert "--load" not in command("podman")


def test_cache_keeps_each_processor_apart(tmp_path: Path, empty_containerd: Containerd) -> None:
    """The cache keeps the dependencies for each platform apart, and a node gets those for its own
    one.
    """
    images = {platform: image_for(platform) for platform in ("linux/amd64", "linux/arm64")}
    for platform, image in images.items():
        write_layout(layout_folder(PLAN, tmp_path, platform), image)
    sources = Sources(tmp_path, tmp_path, "no builder")
    for platform, image in images.items():
        found, built = get_dependencies(PLAN, sources, empty_containerd, platform, print)
        assert found.manifest.digest == image.manifest.digest
        assert not built


def test_bundle_for_another_processor_is_refused(
    tmp_path: Path, empty_containerd: Containerd
) -> None:
    layout = write_layout(tmp_path / "layout", image_for("linux/arm64"))
    sources = Sources(tmp_path, tmp_path, "auto", bundled=layout)
    with pytest.raises(
        ValueError, match="is an image for linux/arm64, but the node runs linux/amd64"
    ):
        get_dependencies(PLAN, sources, empty_containerd, "linux/amd64", print)


def test_base_image_for_another_processor_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build is refused if its result is for another platform than the node's. That happens if
    `imageBase` has the digest of an image for one platform.
    """
    (tmp_path / "docker").mkdir()
    (tmp_path / "trainer").mkdir()
    (tmp_path / "docker/Dockerfile").touch()
    (tmp_path / "trainer/requirements.txt").touch()
    built = write_layout(tmp_path / "built", image_for("linux/amd64"))
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "buildah"
    program.write_text(
        "#!/bin/sh\nfor a; do case $a in oci:*) cp -r " + str(built) + ' "${a#oci:}";; esac; done\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    sources = Sources(tmp_path, tmp_path / "cache", "buildah")
    with pytest.raises(ValueError, match="set imageBase to one for linux/arm64: base:1 is not"):
        build_into_cache(
            plan_image(tmp_path, "localhost/a/b", "base:1", None), sources, "linux/arm64", print
        )
    assert list((tmp_path / "cache" / "images").iterdir()) == []


@pytest.mark.parametrize("damaged", ["index.json", "blob"])
def test_damaged_cache_says_which_folder_to_remove_and_is_not_packed(
    tmp_path: Path, damaged: str
) -> None:
    """If the cache is damaged, as after a power cut, `up` and `make bundle` say which folder to
    remove. Otherwise a bundle would contain a layer that is cut off, which is noticed only where
    there is no network.
    """
    sources = Sources(tmp_path, tmp_path / "cache", "auto")
    layout = layout_folder(PLAN, sources.cache, this_machine())
    image = tiny_image()
    write_layout(layout, image)
    name = image.layers[0].digest.replace(":", "/")
    (layout / ("blobs/" + name if damaged == "blob" else damaged)).write_bytes(b"")
    said = rf"{layout} in the cache is damaged \(.*\)\. Remove that folder"
    with pytest.raises(ValueError, match=said):
        local_dependencies(PLAN, sources, this_machine(), print)
    with pytest.raises(ValueError, match=said):
        cached_layout(PLAN, sources, print)
