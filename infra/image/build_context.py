"""What a build reads: Dockerfile and requirements, and this machine's ways to the package index."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePath

from infra.image.authorities import combined, system_authorities
from infra.image.package_index import pip_files, pip_options, shell_exports
from infra.image.plan import DOCKERFILE, REQUIREMENTS, dependencies_hash
from infra.image.program_plan import DOCKERFILE as PROGRAM_DOCKERFILE
from infra.image.program_plan import context_files, context_hash, mode_in_image

# The address of torch's packages with user and password; never an argument, which all can see.
TORCH_INDEX_VARIABLE = "DISTTRAIN_TORCH_INDEX"
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
CONTEXT = "context"
SECRETS = "secrets"
# The Dockerfile's build step reads them by these names.
INDEX_SECRET, AUTHORITIES_SECRET = "package_index", "ca_bundle"
ENVIRONMENT = {"DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}


@dataclass(frozen=True)
class Build:
    """What is built.

    Args:
        name: full name that docker and podman give the result.
        base_image: argument BASE_IMAGE of the Dockerfile.
        torch_index_url: argument TORCH_INDEX_URL, without a user and a password.
        platform: the platform it is built for, such as `linux/amd64`.
        authorities: certificates (PEM) to trust beside the usual ones; empty: none.
        context: folder with the Dockerfile of a program's image, which has no stages and no
            arguments of ours; None: the trainer's image is built.
        content_hash: of what the name was planned for; empty: it may be of anything.
    """

    name: str
    base_image: str
    torch_index_url: str | None
    platform: str
    authorities: str = ""
    context: Path | None = None
    content_hash: str = ""

    @property
    def dockerfile(self) -> str:
        """Path of the Dockerfile in the context."""
        return PROGRAM_DOCKERFILE if self.context else DOCKERFILE


def stage(project_root: Path, folder: Path, build: Build) -> list[str]:
    """Put into `folder` just what the stage reads: nothing else is sent, nothing else can matter.

    Returns:
        Names of the secrets that there are for the build step.

    Raises:
        ValueError: the files are others by now than those that the image is named after.
    """
    root = build.context or project_root
    files = context_files(root) if build.context else (root / DOCKERFILE, root / REQUIREMENTS)
    for path in files:
        target = folder / CONTEXT / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target, follow_symlinks=False)
        if not target.is_symlink():
            target.chmod(mode_in_image(path))
    for made in (folder / CONTEXT, *(folder / CONTEXT).rglob("*")):
        if made.is_dir() and not made.is_symlink():
            made.chmod(0o755)
    _refuse_other_content(build, root, folder / CONTEXT)
    (folder / SECRETS).mkdir(mode=0o700)
    options = pip_options(os.environ, pip_files(os.environ, Path.home()))
    login = os.environ.get(TORCH_INDEX_VARIABLE)
    if login:
        others = options.get("extra-index-url", "")
        options["extra-index-url"] = f"{others} {login}".strip()
    exports = shell_exports(options)
    if login:
        # Not by an option of the build step's uv, whose command line all users can see.
        exports += "export TORCH_INDEX_URL=\n"
    if exports:
        (folder / SECRETS / INDEX_SECRET).write_text(exports)
    if authorities := _authorities(build, options.get("cert", "")):
        (folder / SECRETS / AUTHORITIES_SECRET).write_text(authorities)
    return sorted(path.name for path in (folder / SECRETS).iterdir())


def _refuse_other_content(build: Build, root: Path, copy: Path) -> None:
    """A build may have waited for another one for minutes, while somebody has gone on working."""
    if build.context:
        found = context_hash(copy)
    else:
        found = dependencies_hash(copy, build.base_image, build.torch_index_url)
    if build.content_hash not in ("", found):
        raise ValueError(
            f"{build.name} was planned, but files in {root} have changed since, and would make "
            f"another image ({found}). Run `pulumi up` again, and change nothing there while it "
            "runs"
        )


def _authorities(build: Build, pip_certificates: str) -> str:
    """What the build trusts, if that differs from what its programs trust by themselves.

    The file that pip's own settings name stands for the usual authorities, as it does for pip.
    """
    usual = Path(pip_certificates).read_text() if Path(pip_certificates).is_file() else ""
    if build.authorities:
        return combined(usual or system_authorities(), build.authorities)
    return usual


def builder_environment(build: Build, folder: PurePath) -> dict[str, str]:
    """Variables for the builder itself, which pulls the base image."""
    if not build.authorities:
        return dict(ENVIRONMENT)
    return {**ENVIRONMENT, "SSL_CERT_FILE": str(folder / SECRETS / AUTHORITIES_SECRET)}


def proxies() -> dict[str, str]:
    """The proxy variables that are set here; an address may hold a password."""
    return {name: value for name in PROXY_VARIABLES if (value := os.environ.get(name))}
