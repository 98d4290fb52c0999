"""How an image is built on this machine: the builder that is chosen, what it gets, and what it must
not see. A stand-in for buildah notes its arguments.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from infra.image import builders
from infra.image.build_context import PROXY_VARIABLES, TORCH_INDEX_VARIABLE, Build, stage
from infra.image.builders import build_layout, choose_builder
from infra.image.dependencies import Sources, build_into_cache
from infra.image.plan import plan_image
from infra.image.program_plan import plan_program_image

BUILD = Build("h/i:1", "b", None, "linux/amd64")
RECORDER = """#!/bin/sh
printf '%s\\n' "$@" > "{log}"
for last; do :; done
(cd "$last" && find . -type f | sort) >> "{log}"
{ending}
"""


def fake_buildah(folder: Path, monkeypatch: pytest.MonkeyPatch, ending: str = "") -> Path:
    """Put a stand-in for buildah on PATH, which notes its arguments and the files of the context;
    return the file with the notes. `ending` is the last line of the stand-in's script.
    """
    folder.mkdir()
    log = folder / "log"
    program = folder / "buildah"
    program.write_text(RECORDER.format(log=log, ending=ending))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    for name in (*PROXY_VARIABLES, "PIP_INDEX_URL", "PIP_CERT", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    return log


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with the files of an image and some that do not belong into it."""
    for name in ("docker/Dockerfile", "trainer/requirements.txt", "trainer/a.py", ".venv/big"):
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(name)
    return tmp_path / "project"


def test_a_docker_client_without_its_engine_is_passed_over() -> None:
    """With `imageBuilder: auto`, the first builder is chosen whose engine answers."""
    asked: list[str] = []

    def succeeds(command: Sequence[str]) -> bool:
        asked.append(" ".join(command))
        return command[0] == "buildah"

    assert choose_builder("auto", succeeds) == "buildah"
    assert asked == ["docker info", "podman info", "buildah info"]


def test_the_wanted_builder_is_the_only_one_tried() -> None:
    """A builder that the setting names is the only one that is tried, and the error names what was
    tried.
    """
    assert choose_builder("podman", lambda command: command[0] == "podman") == "podman"
    with pytest.raises(ValueError, match=r"imageBuilder: 'podman'.*tried `podman info`\)"):
        choose_builder("podman", lambda command: command[0] == "docker")


def test_an_unknown_builder_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(
        ValueError, match=r"imageBuilder: 'kaniko'.*Set one of auto, docker, podman, buildah"
    ):
        choose_builder("kaniko")


def test_nothing_but_dockerfile_and_requirements_is_sent_to_the_builder(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build of the dependencies gets only the Dockerfile and the requirements."""
    log = fake_buildah(tmp_path / "bin", monkeypatch)
    build = Build("h/i:1", "base:1", "https://index", "linux/amd64")
    build_layout("buildah", build, project, tmp_path / "layout")
    lines = log.read_text().splitlines()
    assert [line for line in lines if line.startswith("./")] == [
        "./docker/Dockerfile",
        "./trainer/requirements.txt",
    ]
    assert {"--build-arg=BASE_IMAGE=base:1", "--build-arg=TORCH_INDEX_URL=https://index"} <= set(
        lines
    )
    assert lines[lines.index("--target") + 1] == "deps"


def test_passwords_of_proxy_and_index_are_on_no_command_line(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passwords of the proxy and of the package index are on no command line of the builder, and
    the files with them are removed after the build.
    """
    log = fake_buildah(tmp_path / "bin", monkeypatch)
    monkeypatch.setenv("HTTPS_PROXY", "http://me:sekret@proxy:3128")
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:sekret@index/simple")
    build_layout("buildah", BUILD, project, tmp_path / "layout")
    lines = log.read_text()
    assert "--build-arg=HTTPS_PROXY\n" in lines
    assert "--secret=id=package_index,src=" in lines
    assert "sekret" not in lines
    assert list(tmp_path.glob("context-*")) == []  # the folder with the secrets


def test_password_of_torchs_index_goes_by_a_secret_file(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password in `torchIndexUrl` goes to the build by a secret file. In the build's arguments
    every user of the machine could see it, and some builders would keep it in the image.
    """
    log = fake_buildah(tmp_path / "bin", monkeypatch)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://other/simple")
    monkeypatch.setenv(TORCH_INDEX_VARIABLE, "https://me:sekret@index/whl/cu118")
    build = replace(BUILD, torch_index_url="https://index/whl/cu118")
    build_layout("buildah", build, project, tmp_path / "layout")
    lines = log.read_text()
    assert "--secret=id=package_index,src=" in lines
    assert "sekret" not in lines

    (tmp_path / "staged").mkdir()
    assert "package_index" in stage(project, tmp_path / "staged", build)
    exports = (tmp_path / "staged" / "secrets" / "package_index").read_text()
    assert "UV_INDEX='https://other/simple https://me:sekret@index/whl/cu118'\n" in exports
    # The argument of the build step is emptied, so that uv gets the address by UV_INDEX alone.
    assert exports.endswith("export TORCH_INDEX_URL=\n")


def test_a_failed_build_shows_the_builders_last_lines(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = "echo no such package >&2; exit 3"
    fake_buildah(tmp_path / "bin", monkeypatch, ending)
    with pytest.raises(RuntimeError, match="buildah bud failed:\nno such package"):
        build_layout("buildah", BUILD, project, tmp_path / "layout")


def test_programs_image_is_built_from_its_folder_alone(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build of a user's own program gets all files of its folder with their rights and links,
    except `.git`, and no file of this project.
    """
    folder = tmp_path / "mine"
    (folder / "parts").mkdir(parents=True)
    (folder / ".git").mkdir()
    for name in ("Dockerfile", "parts/run.sh", ".git/HEAD"):
        (folder / name).write_text(name)
    (folder / "parts" / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("parts/run.sh")
    build = replace(BUILD, context=folder)
    log = fake_buildah(tmp_path / "bin", monkeypatch, ending="exit 1")
    stage(project, tmp_path / "staged", build)
    context = tmp_path / "staged" / "context"
    found = {path.relative_to(context).as_posix() for path in context.rglob("*")}
    assert found == {"Dockerfile", "parts", "parts/run.sh", "link"}
    assert (context / "parts" / "run.sh").stat().st_mode & 0o111
    assert (context / "link").readlink() == Path("parts/run.sh")
    with pytest.raises(RuntimeError, match="buildah bud failed"):
        build_layout("buildah", build, project, tmp_path / "layout")
    words = log.read_text()
    assert "/context/Dockerfile" in words
    assert "--target" not in words
    assert "BASE_IMAGE" not in words


def test_the_pods_user_can_read_what_the_build_copies_whatever_the_umask_is(
    tmp_path: Path, project: Path
) -> None:
    """Everybody can read the files in the build's context, whatever the umask and the files' rights
    are. Otherwise the pods' user could not read the image's files, and a later `chmod` would build
    nothing, because rights are not in the image's name.
    """
    folder = tmp_path / "mine"
    (folder / "parts").mkdir(parents=True)
    for name, mode in (("Dockerfile", 0o600), ("parts/run.sh", 0o700), ("parts/a.py", 0o664)):
        (folder / name).write_text(name)
        (folder / name).chmod(mode)
    before = os.umask(0o077)
    try:
        stage(project, tmp_path / "staged", replace(BUILD, context=folder))
    finally:
        os.umask(before)
    context = tmp_path / "staged" / "context"
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in context.rglob("*")}
    assert modes == {"Dockerfile": "0o644", "parts": "0o755", "run.sh": "0o755", "a.py": "0o644"}
    assert context.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "staged" / "secrets").stat().st_mode & 0o777 == 0o700


def test_files_that_changed_while_the_build_waited_are_not_built_under_the_old_name(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build is refused if files have changed since its image was named, for example while another
    build held the lock. Otherwise the new content would be kept under the name of the old one for
    good.
    """
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM mine:1")
    log = fake_buildah(tmp_path / "bin", monkeypatch, ending="exit 0")
    program = plan_program_image(folder, "localhost/t")
    trainer = plan_image(project, "localhost/t", "b", None)
    sources = Sources(project, tmp_path / "cache", "buildah")
    (folder / "Dockerfile").write_text("FROM mine:2")
    (project / "trainer" / "requirements.txt").write_text("other")
    for plan in (program, trainer):
        with pytest.raises(ValueError, match=rf"{plan.deps_hash} was planned.*Run `pulumi up` ag"):
            build_into_cache(plan, sources, "linux/amd64", lambda _: None)
    assert log.read_text().splitlines()[0] == "info"


def test_a_full_disk_ends_the_build_where_docker_still_writes(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full while `docker save` still writes, the build ends with the reason.
    Otherwise it would wait for docker, which waits until somebody reads its gigabytes.
    """
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin" / "docker"
    docker.write_text("#!/bin/sh\n[ $1 = build ] || exec head -c 5000000 /dev/zero\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")

    def full(archive: IO[bytes], layout: Path) -> None:
        archive.read(10)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(builders, "write_layout", full)
    with pytest.raises(RuntimeError, match=r"docker save h/i:1: .*layout: No space left"):
        build_layout("docker", BUILD, project, tmp_path / "layout")
