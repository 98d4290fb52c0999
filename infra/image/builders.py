"""Builds the dependencies with docker, podman or buildah, as an OCI layout on this machine.

The layers are not compressed, because for an import on the same machine that costs more time than
it saves.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath

from infra.image.build_context import (
    CONTEXT,
    SECRETS,
    Build,
    builder_environment,
    proxies,
    stage,
)
from infra.image.docker_archive import write_layout

BUILDERS = ("docker", "podman", "buildah")
# docker is often installed as a client without its engine. Only `info` asks the engine.
PROBES: Mapping[str, Sequence[str]] = {
    "docker": ("docker", "info"),
    "podman": ("podman", "info"),
    "buildah": ("buildah", "info"),
}
STAGE = "deps"


def choose_builder(
    wanted: str,
    succeeds: Callable[[Sequence[str]], bool] | None = None,
    where: str = "this machine",
) -> str:
    """Return the wanted builder, or with `auto` the first of BUILDERS that works.

    Args:
        wanted: `auto` or one of BUILDERS.
        succeeds: tells whether a command succeeds at the place of the build; None: it is run on
            this machine.
        where: name of the place, for the error.

    Raises:
        ValueError: there is no such builder, or none works. The text says what was tried.
    """
    if wanted not in ("auto", *BUILDERS):
        known = ", ".join(("auto", *BUILDERS))
        raise ValueError(
            f"imageBuilder: {wanted!r} cannot be used: there is no such builder. "
            f"Set one of {known}."
        )
    candidates = BUILDERS if wanted == "auto" else (wanted,)
    for builder in candidates:
        if (succeeds or _succeeds)(PROBES[builder]):
            return builder
    tried = ", ".join(f"`{' '.join(PROBES[builder])}`" for builder in candidates)
    raise ValueError(
        f"imageBuilder: {wanted!r} cannot be used: no builder works on {where} (tried {tried}). "
        "Install or start one of them there."
    )


def build_layout(builder: str, build: Build, project_root: Path, layout: Path) -> None:
    """Build the `deps` stage, and write it as an OCI layout into the new folder `layout`.

    Raises:
        RuntimeError: the builder failed. The text ends with its last lines.
        ValueError: the files have changed since the image was planned.
    """
    with tempfile.TemporaryDirectory(dir=layout.parent, prefix="context-") as scratch:
        secrets = stage(project_root, Path(scratch), build)
        variables = builder_environment(build, Path(scratch))
        _run(build_command(builder, build, Path(scratch), secrets, layout), variables)
        if builder != "buildah":
            _save(builder, build.name, layout)


def build_command(
    builder: str, build: Build, folder: PurePath, secrets: Iterable[str], layout: PurePath
) -> list[str]:
    """Return the command that builds the image from a folder that `stage` has filled.

    buildah writes the OCI layout `layout`. docker and podman keep the image under its name.
    """
    context = folder / CONTEXT
    options = [
        *("--file", str(context / build.dockerfile)),
        *(() if build.context else ("--target", STAGE)),
        *("--platform", build.platform),  # docker may build on another machine
        "--network=host",  # so that a proxy on that machine's 127.0.0.1 is reached
        *_build_arguments(build),
        *(f"--secret=id={name},src={folder / SECRETS / name}" for name in secrets),
    ]
    if builder != "buildah":
        # Without --load, docker may keep the result in the builder, where `save` does not look.
        load = ["--load"] if builder == "docker" else []
        return [builder, "build", *options, *load, "--tag", build.name, str(context)]
    # --isolation=chroot works where a container cannot start containers. buildah writes straight
    # into the layout: through its own storage the gigabytes would be written twice more.
    options += ["--isolation=chroot", "--layers=false", "--disable-compression"]
    options += ["--force-rm"]  # leaves no container after a failed step
    return ["buildah", "bud", *options, "--tag", f"oci:{layout}", str(context)]


def _save(builder: str, name: str, layout: Path) -> None:
    command = [builder, "save", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            write_layout(process.stdout, layout)
        except OSError as error:  # for example, the disk is full
            # The builder still writes. It ends because nobody reads its output any more.
            process.stdout.close()
            raise RuntimeError(f"{' '.join(command)}: {layout}: {error.strerror}") from error
        except Exception as error:
            process.stdout.close()
            reason = process.stderr.read().decode(errors="replace").strip() or error
            raise RuntimeError(f"{' '.join(command)} failed: {reason}") from error
        process.stdout.read()  # Read what follows the archive's end, so that the builder can end.
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}")


def _build_arguments(build: Build) -> list[str]:
    given = {"BASE_IMAGE": build.base_image, "TORCH_INDEX_URL": build.torch_index_url or ""}
    if build.context:
        given = {}
    # An argument with a name alone takes its value from the environment, so that a proxy's password
    # is not on the command line. Builders do not keep the proxy variables in the image.
    arguments = [*(f"{name}={value}" for name, value in given.items()), *proxies()]
    return [f"--build-arg={argument}" for argument in arguments]


def _succeeds(command: Sequence[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _run(command: Sequence[str], variables: Mapping[str, str]) -> None:
    done = subprocess.run(
        command,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:2])} failed:\n{_tail(done.stdout.splitlines())}")


def _tail(lines: Iterable[str]) -> str:
    return "\n".join(line[:200] for line in list(lines)[-15:])
