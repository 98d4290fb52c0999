"""Builds the dependencies with docker, podman or buildah, as an OCI layout on this machine.

The layers stay unpacked: for an import on the same machine, packing costs more than it saves.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.imaging.docker_archive import write_layout
from infra.imaging.package_index import pip_files, pip_options, shell_exports
from infra.imaging.plan import DOCKERFILE, REQUIREMENTS

BUILDERS = ("docker", "podman", "buildah")
# docker is often there as a client without its engine; only `info` asks the engine
PROBES: Mapping[str, Sequence[str]] = {
    "docker": ("docker", "info"),
    "podman": ("podman", "info"),
    "buildah": ("buildah", "info"),
}
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
STAGE = "deps"


@dataclass(frozen=True)
class Build:
    """The arguments of the Dockerfile, and the name that docker and podman give the result."""

    name: str
    base_image: str
    torch_index_url: str | None


def choose_builder(wanted: str, succeeds: Callable[[Sequence[str]], bool] | None = None) -> str:
    """The wanted builder, or with `auto` the first of BUILDERS that works here.

    Args:
        wanted: `auto` or one of BUILDERS.
        succeeds: whether a command ends well; for tests.

    Raises:
        ValueError: no such builder, or none works; says what was tried.
    """
    if wanted not in ("auto", *BUILDERS):
        allowed = ", ".join(("auto", *BUILDERS))
        raise ValueError(f"imageBuilder: {wanted!r} is not allowed; allowed: {allowed}")
    candidates = BUILDERS if wanted == "auto" else (wanted,)
    for builder in candidates:
        if (succeeds or _succeeds)(PROBES[builder]):
            return builder
    tried = ", ".join(f"`{' '.join(PROBES[builder])}`" for builder in candidates)
    raise ValueError(f"imageBuilder: {wanted!r}: no builder works on this machine (tried {tried})")


def build_layout(builder: str, build: Build, project_root: Path, layout: Path) -> None:
    """Build the `deps` stage and leave it as an OCI layout in the new folder `layout`.

    Raises:
        RuntimeError: the builder failed; ends with its last lines.
    """
    with tempfile.TemporaryDirectory(dir=layout.parent, prefix="context-") as scratch:
        context, secrets = Path(scratch) / "context", Path(scratch) / "secrets"
        _stage_context(project_root, context)
        options = [
            *("--file", str(context / DOCKERFILE), "--target", STAGE),
            "--network=host",  # so that a proxy on this machine's 127.0.0.1 is reached
            *_build_arguments(build),
            *_secrets(secrets),
        ]
        if builder == "buildah":
            # chroot works where containers inside containers do not. Straight into the layout:
            # by way of buildah's storage the gigabytes would be written twice more.
            options += ["--isolation=chroot", "--layers=false", "--disable-compression"]
            options += ["--force-rm"]  # leave no container behind, also after a failed step
            _run(["buildah", "bud", *options, "--tag", f"oci:{layout}", str(context)])
        else:
            _run([builder, "build", *options, "--tag", build.name, str(context)])
            _save(builder, build.name, layout)


def _save(builder: str, name: str, layout: Path) -> None:
    command = [builder, "save", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            write_layout(process.stdout, layout)
        except Exception as error:
            reason = process.stderr.read().decode(errors="replace").strip() or error
            raise RuntimeError(f"{' '.join(command)} failed: {reason}") from error
        process.stdout.read()  # what follows the archive's end, so that the writer can end
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}")


def _build_arguments(build: Build) -> list[str]:
    given = {"BASE_IMAGE": build.base_image, "TORCH_INDEX_URL": build.torch_index_url or ""}
    # A name alone takes its value from the environment: a proxy's password stays off the
    # command line, and builders leave the proxy variables out of the image.
    proxies = [name for name in PROXY_VARIABLES if os.environ.get(name)]
    arguments = [*(f"{name}={value}" for name, value in given.items()), *proxies]
    return [f"--build-arg={argument}" for argument in arguments]


def _secrets(folder: Path) -> list[str]:
    """Options that mount this machine's CA bundle and package index for the one build step."""
    folder.mkdir(mode=0o700)
    options = pip_options(os.environ, pip_files(os.environ, Path.home()))
    exports = shell_exports(options)
    secrets: dict[str, Path] = {}
    if exports:
        secrets["package_index"] = folder / "package_index"
        secrets["package_index"].write_text(exports)
    if Path(options.get("cert", "")).is_file():
        secrets["ca_bundle"] = Path(options["cert"])
    return [f"--secret=id={name},src={path}" for name, path in secrets.items()]


def _stage_context(project_root: Path, context: Path) -> None:
    """A context with just what the stage reads: nothing else is sent, nothing else can matter."""
    for name in (DOCKERFILE, REQUIREMENTS):
        target = context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(project_root / name, target)


def _succeeds(command: Sequence[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        command,
        env={**os.environ, "DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"},
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
