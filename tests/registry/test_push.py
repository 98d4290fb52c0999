"""The push of the trainer image to a real registry: what is sent, what is refused, and cuts."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.image.oci import CONFIG_TYPE, Image, as_json, blob, descriptor, image_annotations
from infra.image.platforms import this_machine
from infra.image.registry.connection import Access, RegistryError
from infra.image.registry.login import Login
from infra.image.registry.push import REQUEST_ANNOTATION, deps_tag, tag_of
from infra.image.registry.repository import Repository
from tests.gate import Gate
from tests.registry.lab import LOGIN, Project, Server, TokenFront, make_project, running
from tests.sandbox.image_lab import running_containerd


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a new project with small dependencies."""
    return make_project(tmp_path / "project")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a registry without TLS and without a login, which the tests share."""
    with running(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture
def access(server: Server, tmp_path: Path) -> Access:
    """Return a repository that no other test uses."""
    name = tmp_path.name.lower().replace("_", "-")
    return Access(f"{server.name}/{name}/trainer", plain_http=True)


def test_first_push_sends_all_and_a_second_nothing(project: Project, access: Access) -> None:
    """A push sends only the bytes that the registry lacks, so a second push sends none."""
    first = project.push(access)
    assert first.pushed_bytes > 0
    again = project.push(access)
    assert (again.pushed_bytes, again.digest, again.image) == (0, first.digest, first.image)


def test_changed_code_moves_the_code_alone(project: Project, access: Access) -> None:
    """After a change of the code, a push sends only the layer of the code.

    This also holds on a machine that never built the dependencies: they are neither built nor sent.
    """
    project.push(access)
    (project.folder / "trainer" / "__main__.py").write_text("print('two')\n")
    elsewhere = replace(project, cache=project.folder / "another-cache", said=[])
    changed = elsewhere.push(access)
    assert 0 < changed.pushed_bytes < 10_000
    assert not changed.built


def test_kubelets_containerd_can_pull_what_was_pushed(project: Project, access: Access) -> None:
    """containerd can pull the pushed image, and gets the digest that the push has told.

    containerd unpacks the layers, so it checks every digest. Layers that consist of several gzip
    pieces are valid for it.
    """
    pushed = project.push(access)
    with running_containerd() as containerd:
        address = ["--address", str(containerd.address)]
        pull = ["ctr", *address, "images", "pull", "--plain-http", pushed.image]
        done = subprocess.run(pull, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert containerd.images("default")[pushed.image] == pushed.digest


def test_layers_without_compression_are_the_same_blobs(project: Project, access: Access) -> None:
    """Without compression, the layers in the registry are the same blobs as in an import.

    So a node that has got the image by an import needs none of the large layers again.
    """
    project.push(access, compress=False)
    image = Repository(access).image(tag_of(project.plan(access.repository)))
    assert image is not None
    assert image.layers[0].digest == project.deps.layers[0].digest


def test_image_that_has_gone_is_sent_again_with_the_new_request(
    project: Project, access: Access, server: Server
) -> None:
    """An image that was deleted from the registry is pushed again, with the request of the new
    push.

    `pulumi up` recognizes a lost image by this request; see infra/image/presence.py.
    """
    project.push(access, "first")
    plan = project.plan(access.repository)
    tags = server.tags(access.repository.partition("/")[2])
    assert {tag.name for tag in tags.iterdir()} == {tag_of(plan), deps_tag(plan, this_machine())}
    subprocess.run(["rm", "-r", str(tags / tag_of(plan))], check=True)
    again = project.push(access, "second")
    assert again.pushed_bytes < 10_000
    image = Repository(access).image(tag_of(plan))
    assert image is not None
    assert image_annotations(image)[REQUEST_ANNOTATION] == "second"


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
def test_cut_connection_goes_on_where_the_registry_stopped(
    server: Server, tmp_path: Path, share: float
) -> None:
    """After a cut connection, the push goes on after the bytes that the registry has.

    For a while after the cut, the registry still writes what came before it, and may report less.
    """
    project = make_project(tmp_path / "project", deps_bytes=30_000_000)
    gate = Gate(server.address)
    gate.cut_after_bytes = int(30_000_000 * share)
    try:
        repository = f"127.0.0.1:{gate.port}/cut-{int(share * 100)}/trainer"
        pushed = project.push(Access(repository, plain_http=True), compress=False)
    finally:
        gate.close()
    assert pushed.pushed_bytes > 30_000_000
    assert [line for line in project.said if "the registry broke off" in line]
    # The buffers of the connections may hold 10 MB, which the registry never saw.
    went_on = [line for line in project.said if "image: going on after" in line]
    assert went_on or share < 0.5


def test_registry_that_stays_away_ends_the_push(
    server: Server, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.image.registry.repository.PAUSE_SECONDS", 0)
    gate = Gate(server.address)
    gate.cut_after_bytes, gate.close_when_cut = 1_000_000, True
    access = Access(f"127.0.0.1:{gate.port}/away/trainer", plain_http=True)
    with pytest.raises(RegistryError, match=r"in 4 attempts .*run `pulumi up` again"):
        project.push(access, compress=False)
    # There is no tag, because the image is not complete.
    assert not server.tags("away/trainer").exists()


def test_tls_and_login_as_companies_have_them(project: Project, tmp_path: Path) -> None:
    with running(tmp_path / "registry", login=True, tls=True) as server:
        access = Access(f"{server.name}/team/trainer", LOGIN, authorities=server.authority)
        assert project.push(access).pushed_bytes > 0
        for wrong, words in (
            (replace(access, authorities=""), "certificate is not trusted: set caBundle"),
            (replace(access, login=None), "nobody is logged in .*docker login 127.0.0.1"),
            (replace(access, login=Login("tests", "wrong")), "the user 'tests' may not do this"),
        ):
            with pytest.raises(RegistryError, match=words) as failure:
                project.push(wrong)
            assert f"imageRepository: '{access.repository}'" in str(failure.value)
            assert "password-of-the-tests" not in str(failure.value)


def test_plain_registry_and_dead_port_are_told_apart(project: Project, server: Server) -> None:
    for access, words in (
        (Access(f"{server.name}/team/trainer"), "speaks plain HTTP: set .*plainHttp to true"),
        (Access("127.0.0.1:1/team/trainer"), "cannot be reached .*refused.*noProxy"),
    ):
        with pytest.raises(RegistryError, match=words):
            project.push(access)


def test_token_that_runs_out_on_the_way_is_renewed(
    server: Server, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push gets a new token when its token expires on the way, as with an image of gigabytes."""
    monkeypatch.setattr("infra.image.registry.repository.PAUSE_SECONDS", 0)
    front = TokenFront(server, lasts=3)
    try:
        access = Access(f"{front.name}/tokens/trainer", LOGIN, plain_http=True)
        pushed = project.push(access)
        assert project.push(access).digest == pushed.digest
        assert front.given > 1
        with pytest.raises(RegistryError, match=r"nobody is logged in .*who are you"):
            project.push(replace(access, login=None))
    finally:
        front.close()


def test_image_of_other_processors_is_not_taken(project: Project, access: Access) -> None:
    plan, repository = project.plan(access.repository), Repository(access)
    project.push(access)
    there = repository.image(tag_of(plan))
    assert there is not None
    config = json.loads(there.config.read()) | {"architecture": "riscv64"}
    other = blob(as_json(config))
    manifest = json.loads(there.manifest.read()) | {"config": descriptor(CONFIG_TYPE, other)}
    repository.push_blob(other, project.said.append)
    repository.push_image(tag_of(plan), Image(blob(as_json(manifest)), other, there.layers))
    with pytest.raises(
        RegistryError, match="for linux/riscv64, and this machine would make it for"
    ):
        project.push(access)
