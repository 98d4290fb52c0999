"""The image is imported into a real containerd that the tests run themselves (image_lab.py)."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from infra.image.containerd import POD_NAMESPACE_LABEL, Containerd, ContainerdError
from infra.image.dependencies import Sources, locked
from infra.image.ensure import Ensured, ensure, image_to_read, problems
from infra.image.oci import Blob, Image
from infra.image.presence import import_request
from infra.image.sbom import sbom
from infra.image.transfer import import_images
from tests.sandbox.image_command import PROJECT, run_command
from tests.sandbox.image_lab import (
    DEPS_BYTES,
    REPOSITORY,
    Lab,
    emptied,
    running_containerd,
    wait_for,
)
from tests.unit.image.layouts import tiny_image, write_layout

ABSENT = Blob(f"sha256:{'0' * 64}", 1, None)


def test_the_first_import_moves_everything_and_the_second_nothing(lab: Lab) -> None:
    """The first import moves the whole image, and the second moves nothing."""
    first = lab.ensure()
    assert first.imported_bytes > DEPS_BYTES
    assert lab.containerd.images()[first.image] == first.digest
    assert lab.ensure() == Ensured(first.image, first.digest, 0, built=False)
    assert problems(lab.plan(), lab.containerd) == []


def test_changed_code_moves_kilobytes_and_is_what_the_new_image_holds(
    lab: Lab, tmp_path: Path
) -> None:
    """After a change of the code, the import moves only kilobytes, and the new image has the new
    code. The old image keeps the old one.
    """
    first = lab.ensure()
    lab.change_code("print(2)\n")
    second = lab.ensure()
    assert second.image != first.image
    assert 0 < second.imported_bytes < 20_000
    for image, text in ((first, "print(1)\n"), (second, "print(2)\n")):
        found = lab.file_in_image(image.image, "app/trainer/__main__.py", tmp_path / text[6])
        assert found[0] == text
        assert (found[1].st_uid, found[1].st_gid, oct(found[1].st_mode)) == (0, 0, "0o100644")


# The first import ends containerd in the middle of the image, as NVIDIA's container toolkit does
# when the GPU Operator installs it: it sends SIGHUP, which containerd does not handle.
ENDS_CONTAINERD = """\
#!/bin/sh
case $* in *"images import"*)
  if mkdir {folder}/ended 2>/dev/null; then
    {{ head -c 2000000; kill -HUP "$(cat {pid})"; cat; }} | ctr "$@"
    exit
  fi
esac
exec ctr "$@"
"""


def test_containerd_that_restarts_meanwhile_gets_the_image(lab: Lab, tmp_path: Path) -> None:
    """An import goes on when containerd restarts meanwhile. Otherwise `up` would end with "EOF" if
    the image arrived while the GPU Operator is being installed.
    """
    ctr = tmp_path / "ctr"
    pid = Path(str(lab.containerd.address)).parent / "pid"
    ctr.write_text(ENDS_CONTAINERD.format(folder=tmp_path, pid=pid))
    ctr.chmod(0o755)
    lab = replace(lab, containerd=replace(lab.containerd, ctr=[str(ctr)]))
    assert lab.ensure().imported_bytes > 0
    assert (tmp_path / "ended").exists()
    assert problems(lab.plan(), lab.containerd) == []


def test_an_image_that_was_deleted_comes_back(lab: Lab) -> None:
    """An image that was deleted on the node is missed and imported again, without its dependencies,
    which are kept under a name of their own.
    """
    first = lab.ensure()
    lab.containerd.remove_images([first.image])
    assert problems(lab.plan(), lab.containerd) == [
        f"{first.image} is not in containerd's namespace 'k8s.io'"
    ]
    again = lab.ensure()
    assert again.digest == first.digest
    assert again.imported_bytes < 20_000  # the dependencies were kept by their own name
    assert problems(lab.plan(), lab.containerd) == []


def request_of(lab: Lab) -> str:
    """Return the request with which `pulumi up` compares."""
    return import_request(lab.plan(), lab.containerd, lab.cache, "node")


def test_a_missing_image_has_a_new_import_request_until_it_is_there(lab: Lab) -> None:
    """The import request is the same while the image is there, and another one once the image has
    gone. `pulumi up` compares this request, and a preview and the update after it must see the same
    one.
    """
    by_hand = lab.ensure()
    assert request_of(lab) == ""
    seen: list[str] = []
    for take_away in (remove, break_off, remove):
        take_away(lab, by_hand)
        seen.append(request_of(lab))
        assert seen[-1] == request_of(lab), "preview and update"
        lab.ensure(request=seen[-1])
        for _ in range(2):
            assert request_of(lab) == seen[-1]
    assert len({"", *seen}) == 4
    # another stack on the node has imported the image again
    lab.ensure(request="later")
    assert request_of(lab) == "later"
    assert "io.cri-containerd.pinned=pinned" in lab.ctr("images", "ls")


def remove(lab: Lab, image: Ensured) -> None:
    """Remove the image from containerd."""
    lab.containerd.remove_images([image.image])


def break_off(lab: Lab, image: Ensured) -> None:
    """Remove a layer of the image, as an import that was cut off would leave it."""
    assert image.digest
    lab.ctr("content", "rm", lab.deps.layers[0].digest)


def test_why_the_image_is_imported_is_said(lab: Lab) -> None:
    """The import says why it is needed."""
    first = lab.ensure()
    remove(lab, first)
    lab.said.clear()
    lab.ensure()
    assert lab.said[0] == f"image: {first.image} is not in containerd's namespace 'k8s.io'"


def test_a_containerd_that_does_not_answer_in_time_holds_no_image(lab: Lab, tmp_path: Path) -> None:
    """A containerd that does not answer in time counts as one without the image, with the same
    request each time.
    """
    (tmp_path / "ctr").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "ctr").chmod(0o755)
    silent = Containerd([str(tmp_path / "ctr")], patience_seconds=0.1)
    with pytest.raises(ContainerdError, match=r"no answer in 0\.1 s"):
        silent.images()
    asked = [import_request(lab.plan(), silent, tmp_path, "node") for _ in range(2)]
    assert asked[0] == asked[1] != ""


def test_after_everything_was_deleted_everything_is_moved_again(lab: Lab) -> None:
    first = lab.ensure()
    lab.containerd.remove_images([first.image, lab.plan().deps_reference])
    wait_for("containerd to be empty", lab.empty)
    assert lab.ensure() == first


def test_with_an_empty_cache_the_dependencies_at_the_node_are_used(
    lab: Lab, tmp_path: Path
) -> None:
    """With an empty cache, the dependencies that the node has are used, and nothing is built."""
    first = lab.ensure()
    lab.change_code("print(3)\n")
    second = lab.ensure(cache=tmp_path / "empty")
    assert not second.built
    assert second.imported_bytes < 20_000
    assert second.digest != first.digest
    assert lab.containerd.complete_image(second.image) is not None


def test_an_image_whose_layer_is_gone_is_reported_and_mended(lab: Lab) -> None:
    """An image that lacks a layer is reported, and the next import mends it."""
    first = lab.ensure()
    lab.ctr("content", "rm", lab.deps.layers[0].digest)
    assert problems(lab.plan(), lab.containerd) == [
        f"{first.image} is there, but incomplete or with other content"
    ]
    assert lab.ensure().imported_bytes > DEPS_BYTES
    assert problems(lab.plan(), lab.containerd) == []


def test_other_content_under_our_name_is_reported_and_replaced(lab: Lab) -> None:
    """Another image under the name of the project's image is reported and replaced."""
    other = tiny_image(b"not ours")
    import_images(lab.containerd, {lab.plan().reference: other}, print)
    assert "other content" in problems(lab.plan(), lab.containerd)[0]
    assert lab.containerd.images()[lab.plan().reference] == other.manifest.digest
    assert lab.ensure().digest == lab.containerd.images()[lab.plan().reference]
    assert problems(lab.plan(), lab.containerd) == []


def test_an_image_in_another_namespace_is_reported_and_imported_where_the_kubelet_looks(
    lab: Lab,
) -> None:
    """An image in another namespace of containerd is reported, and imported into the one where the
    kubelet looks.
    """
    elsewhere = Containerd(lab.containerd.ctr, lab.containerd.address, "default")
    ensure(lab.plan(), elsewhere, Sources(lab.project, lab.cache, "auto"), lab.said.append)
    reference = lab.plan().reference
    expected = (
        f"{reference} is in containerd's namespace 'default', "
        "but the kubelet looks only in 'k8s.io'"
    )
    assert problems(lab.plan(), lab.containerd) == [
        f"{reference} is not in containerd's namespace 'k8s.io'",
        expected,
    ]
    lab.ensure()
    assert f"image: {expected}" in lab.said
    assert problems(lab.plan(), lab.containerd) == []


def test_an_image_under_another_name_is_reported(lab: Lab) -> None:
    """An image that is there under another name than pods ask for is reported with both names."""
    wrong = lab.ensure("localhost/other/name").image
    found = problems(lab.plan(), lab.containerd)
    assert found[1] == f"the image is there as {wrong}, but pods ask for {lab.plan().reference}"


def test_the_images_are_pinned_against_the_kubelets_clean_up(lab: Lab) -> None:
    """The image and its dependencies are pinned, so that the kubelet does not remove them when the
    disk is full.
    """
    lab.ensure()
    for name in (lab.plan().reference, lab.plan().deps_reference):
        assert "io.cri-containerd.pinned=pinned" in lab.ctr("images", "ls", f"name=={name}")


def test_the_list_of_packages_is_the_same_from_the_cache_and_from_containerd(
    lab: Lab, tmp_path: Path
) -> None:
    """The list of packages (SBOM) of an image is the same from the cache and from containerd."""
    status = "Package: a\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n"
    deps = tiny_image(os.urandom(DEPS_BYTES), {"var/lib/dpkg/status": status})
    write_layout(lab.built, deps)
    reference = lab.ensure().image
    documents = [
        sbom(reference, image_to_read(lab.plan(), cache, lab.containerd), lab.containerd.content)
        for cache in (lab.cache, tmp_path / "empty")
    ]
    assert documents[0] == documents[1]
    assert [c["purl"] for c in documents[0]["components"]] == ["pkg:deb/debian/a@1?arch=all"]
    with pytest.raises(ContainerdError, match="content get"):
        sbom(reference, Image(deps.manifest, deps.config, (ABSENT,)), lab.containerd.content)


def test_remove_takes_our_images_with_all_their_bytes_and_leaves_the_others(lab: Lab) -> None:
    """`remove` removes all images of the repository with their content, and no other image."""
    other = tiny_image(b"somebody else's")
    import_images(lab.containerd, {"localhost/other:1": other}, print)
    first = lab.ensure()
    lab.change_code("print(4)\n")
    second = lab.ensure()
    for image in (first, second):
        wait_for("the CRI plugin", lambda digest=image.digest: lab.cri_knows(digest))
    address = str(lab.containerd.address)
    removed = run_command("remove", "--repository", REPOSITORY, "--address", address)
    assert removed["removed"] >= 3
    assert set(lab.containerd.images().values()) == {other.manifest.digest}
    left = set(lab.ctr("content", "ls", "-q").split())
    assert left == {part.digest for part in other.blobs}


def test_remove_leaves_what_pods_of_another_namespace_use(lab: Lab) -> None:
    """`remove` leaves an image that pods of another namespace use. Otherwise `destroy` of one stack
    would take the image from a training of another stack on the same node, whose pods could then
    not start again.
    """
    image = lab.ensure()
    wait_for("the CRI plugin", lambda: lab.cri_knows(image.digest))
    images = lab.containerd.images().items()
    (second,) = (k for k, v in images if k.startswith("sha256:") and v == image.digest)
    label = f"{POD_NAMESPACE_LABEL}=theirs"
    lab.ctr(
        "containers", "create", "--label", label, second, "trainer"
    )  # as the CRI plugin does for the kubelet
    words = ("remove", "--repository", REPOSITORY, "--address", str(lab.containerd.address))
    try:
        before = lab.containerd.images()
        assert run_command(*words, "--pods-of", "ours") == {"removed": 0}
        assert lab.containerd.images() == before
        assert run_command(*words, "--pods-of", "theirs")["removed"] >= 2
    finally:
        lab.ctr("containers", "rm", "trainer")


def test_remove_leaves_what_the_platform_of_another_namespace_wants(lab: Lab) -> None:
    """`remove` leaves an image that the platform of another namespace wants, even if it has no pod
    at the moment. Otherwise the pods of that platform's next run could not start, because only its
    own `up` imports an image.
    """
    lab.ensure(namespace="ours")
    lab.ensure(namespace="theirs")
    names = (lab.plan().reference, lab.plan().deps_reference)
    references = [word for name in names for word in ("--reference", name)]
    words = ("remove", "--repository", REPOSITORY, "--address", str(lab.containerd.address))
    before = lab.containerd.images().items()
    assert run_command(*words, *references, "--pods-of", "ours") == {"removed": 0}
    assert {name: lab.containerd.images()[name] for name in names}.items() <= before
    assert run_command(*words, *references, "--pods-of", "theirs")["removed"] >= 2
    assert not set(names) & set(lab.containerd.images())


def test_remove_has_nothing_to_do_when_containerd_is_gone(tmp_path: Path) -> None:
    """`remove` on a node without containerd removes nothing and ends well."""
    gone = ("--address", f"{tmp_path}/no.sock")
    assert run_command("remove", "--repository", REPOSITORY, *gone) == {"removed": 0}
    gone = ("--ctr", f"{tmp_path}/no-ctr")
    assert run_command("remove", "--repository", REPOSITORY, *gone) == {"removed": 0}


@pytest.fixture
def slow_build(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a stand-in for the builder, which goes on when another run waits for a lock. Return the
    file in which it notes each build.
    """
    lab.built.rename(tmp_path / "built")
    program = tmp_path / "bin" / "buildah"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        '[ "$1" = bud ] || exit 0\n'
        f"echo build >> {tmp_path}/builds\n"
        f"locks=$(find {lab.cache} -name '*.lock' -exec stat -c %i {{}} + | paste -sd '|')\n"
        'blocked() { grep -qE -- "-> FLOCK .*:($locks) " /proc/locks; }\n'
        "for _ in $(seq 600); do blocked && break; sleep 0.1; done; blocked || exit 1\n"
        f'for a; do case $a in oci:*) cp -r {tmp_path}/built "${{a#oci:}}";; esac; done\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setattr("infra.image.builders.BUILDERS", ("buildah",))
    return tmp_path / "builds"


def at_once(*labs: Lab) -> list[Ensured]:
    """Import the image into all labs at the same time, and return what was done."""
    with ThreadPoolExecutor(len(labs)) as pool:
        return list(pool.map(lambda lab: lab.ensure(), labs))


def test_two_runs_at_once_build_and_move_once(lab: Lab, slow_build: Path) -> None:
    """Two imports at once build the dependencies once and move the image once."""
    results = at_once(lab, lab)
    assert slow_build.read_text() == "build\n"
    assert sorted(result.built for result in results) == [False, True]
    assert sorted(result.imported_bytes > DEPS_BYTES for result in results) == [False, True]
    assert {result.digest for result in results} == {lab.containerd.images()[results[0].image]}


def test_two_machines_get_at_once_what_was_built_once(lab: Lab, slow_build: Path) -> None:
    """Two machines at once get an image that was built once. Each gets all of it, and later only
    the machine that lacks something.
    """
    with running_containerd() as containerd:
        other = replace(lab, containerd=containerd)
        results = at_once(lab, other)
        assert slow_build.read_text() == "build\n"
        assert all(result.imported_bytes > DEPS_BYTES for result in results)
        assert len({result.digest for result in results}) == 1
        for machine in (lab, other):
            assert machine.containerd.images()[results[0].image] == results[0].digest
        assert [result.imported_bytes for result in at_once(lab, other)] == [0, 0]
        wait_for("the other containerd to be empty", lambda: emptied(containerd))
        assert [result.imported_bytes > DEPS_BYTES for result in at_once(lab, other)] == [
            False,
            True,
        ]


def test_machine_that_is_slow_keeps_no_other_waiting(lab: Lab) -> None:
    """An import into one machine does not wait for the import into another one."""
    with locked(lab.plan(), lab.cache, print, "another machine"):
        assert lab.ensure().imported_bytes > DEPS_BYTES


def test_a_bad_setting_ends_with_one_clear_line_and_status_1() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "infra.image", "check", "--repository", "trainer"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout.startswith("image: imageRepository: 'trainer' cannot be used: it is not a ")
    assert max(map(len, done.stdout.splitlines())) <= 200


def test_layout_of_a_bundle_is_imported_and_nothing_is_built(lab: Lab, tmp_path: Path) -> None:
    """The image of a bundle for machines without internet is imported, and nothing is built."""
    layout = lab.built.rename(tmp_path / "bundled")
    said: list[str] = []
    sources = Sources(lab.project, tmp_path / "empty", "no such builder", bundled=layout)
    done = ensure(lab.plan(), lab.containerd, sources, said.append)
    assert done.imported_bytes > DEPS_BYTES
    assert not done.built
    assert lab.containerd.images()[done.image] == done.digest
    assert not any("building" in line for line in said)
