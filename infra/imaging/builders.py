"""Builds the dependencies with docker, podman or buildah, and exports them as an OCI layout."""

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROXY_VARIABLES = tuple(
    name for base in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY") for name in (base, base.lower())
)
BUILDERS = ("docker", "podman", "buildah")


@dataclass(frozen=True)
class Build:
    """What to build: the `deps` stage of the Dockerfile in a folder that is the context."""

    context: Path
    name: str
    base_image: str
    torch_index_url: str | None


def choose_builder(wanted: str, run: Callable[[list[str]], bool] | None = None) -> str:
    """The first builder that works, or the wanted one.

    Args:
        wanted: `auto` or one of BUILDERS.
        run: says whether a command succeeds; for tests.

    Raises:
        ValueError: none works, or not the wanted one; says what was tried.
    """
    works = run or _succeeds
    if wanted not in ("auto", *BUILDERS):
        allowed = ", ".join(("auto", *BUILDERS))
        raise ValueError(f"imageBuilder: {wanted!r} is not allowed; allowed: {allowed}")
    candidates = BUILDERS if wanted == "auto" else (wanted,)
    # docker is often there as a client without its engine: only `info` knows
    probes = {"docker": ["docker", "info"], "podman": ["podman", "info"]}
    for builder in candidates:
        if works(probes.get(builder, [builder, "--version"])):
            return builder
    raise ValueError(
        f"imageBuilder: none of {', '.join(candidates)} works here; "
        "install one of docker, podman, buildah"
    )


def build_layout(builder: str, build: Build, layout: Path) -> None:
    """Build and leave the image as an OCI layout in the new folder `layout`.

    Layers stay uncompressed: they are read on this machine, where packing costs more than it saves.

    Raises:
        RuntimeError: the builder failed; ends with its last lines.
    """
    with _secrets() as secrets:
        if builder == "docker":
            _docker(build, secrets, layout)
        else:
            _buildah(builder, build, secrets, layout)


def _docker(build: Build, secrets: list[str], layout: Path) -> None:
    environment = {**os.environ, "DOCKER_BUILDKIT": "1"}
    _run(["docker", "build", *_options(build), *secrets, str(build.context)], environment)
    with tempfile.TemporaryDirectory(dir=layout.parent) as scratch:
        archive = Path(scratch) / "image.tar"
        # since Docker 25 `save` writes an OCI layout
        _run(["docker", "save", "--output", str(archive), build.name])
        with tarfile.open(archive) as tar:
            tar.extractall(layout, filter="data")
    if not (layout / "index.json").exists():
        raise RuntimeError("imageBuilder: docker older than 25 writes no OCI layout; update it")


def _buildah(builder: str, build: Build, secrets: list[str], layout: Path) -> None:
    command = [builder, "bud"] if builder == "buildah" else [builder, "build"]
    # chroot isolation works where a container's own namespaces are not allowed
    isolation = ["--isolation", "chroot"] if builder == "buildah" else []
    _run([*command, *isolation, "--layers=false", "--format=oci", *_options(build), *secrets]
         + [str(build.context)])  # fmt: skip
    _run([builder, "push", "--disable-compression", build.name, f"oci:{layout}"])
    _run([builder, "rmi", build.name])


def _options(build: Build) -> list[str]:
    arguments: Mapping[str, str] = {
        "BASE_IMAGE": build.base_image,
        "TORCH_INDEX_URL": build.torch_index_url or "",
    } | {name: os.environ[name] for name in PROXY_VARIABLES if os.environ.get(name)}
    # `--build-arg NAME` alone takes the value from the environment: a proxy's password stays off
    # the command line
    given = [
        f"{name}={value}" if name not in PROXY_VARIABLES else name
        for name, value in arguments.items()
    ]
    return [
        *("--file", str(build.context / "docker" / "Dockerfile")),
        *("--target", "deps", "--tag", build.name),
        *(f"--build-arg={argument}" for argument in given),
    ]


@contextmanager
def _secrets() -> Iterator[list[str]]:
    """The host's CA bundle and pip settings as secrets: mounted for one step, in no layer."""
    environment = os.environ
    found = {
        "ca_bundle": environment.get("PIP_CERT") or environment.get("SSL_CERT_FILE"),
        "pip_conf": environment.get("PIP_CONFIG_FILE") or "/etc/pip.conf",
    }
    yield [
        f"--secret=id={name},src={path}"
        for name, path in found.items()
        if path and Path(path).is_file()
    ]


def stage_context(project_root: Path, context: Path) -> None:
    """Fill the folder with what the build may see, so that nothing else travels."""
    for name in ("docker/Dockerfile", "trainer/requirements.txt"):
        target = context / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(project_root / name, target)


def _succeeds(command: list[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def _run(command: list[str], environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(line[:200] for line in done.stdout.splitlines()[-15:])
        raise RuntimeError(f"{' '.join(command[:2])} failed:\n{tail}")
