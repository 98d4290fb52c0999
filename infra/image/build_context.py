"""Collects what a build reads: its files, and how this machine reaches the package index."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePath

from infra.image.authorities import combined, system_authorities
from infra.image.package_index import pip_files, pip_options, shell_exports
from infra.image.plan import DOCKERFILE, REQUIREMENTS, dependencies_hash
from infra.image.program_plan import DOCKERFILE as PROGRAM_DOCKERFILE
from infra.image.program_plan import context_files, context_hash, mode_in_image

# The variable with the address of torch's packages, with user and password. It is never passed as
# an argument, because all users of the machine can see arguments.
TORCH_INDEX_VARIABLE = "DISTTRAIN_TORCH_INDEX"
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
CONTEXT = "context"
SECRETS = "secrets"
# The names by which the Dockerfile's build step reads the secrets.
INDEX_SECRET, AUTHORITIES_SECRET = "package_index", "ca_bundle"
ENVIRONMENT = {"DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}


@dataclass(frozen=True)
class Build:
    """The image that is built, and what it is built from.

    Args:
        name: full name that docker and podman give the result.
        base_image: argument BASE_IMAGE of the Dockerfile.
        torch_index_url: argument TORCH_INDEX_URL, without a user and a password.
        platform: the platform that the image is built for, such as `linux/amd64`.
        authorities: certificates (PEM) to trust in addition to the usual ones; empty: none.
        context: folder with the Dockerfile of a program's image, which is built without a stage
            and without disttrain's arguments; None: the trainer's image is built.
        content_hash: hash of the files that the image is named after; empty: it is not checked.
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
        """Path of the Dockerfile below the context."""
        return PROGRAM_DOCKERFILE if self.context else DOCKERFILE


def stage(project_root: Path, folder: Path, build: Build) -> list[str]:
    """Copy into `folder` only the files that the build reads, so that no other file is sent.

    Returns:
        Names of the secrets for the build step.

    Raises:
        ValueError: the files have changed since the image was named after them.
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
        # The secret sets the index, and an option of uv does not, because all users of the machine
        # can see the command line.
        exports += "export TORCH_INDEX_URL=\n"
    if exports:
        (folder / SECRETS / INDEX_SECRET).write_text(exports)
    if authorities := _authorities(build, options.get("cert", "")):
        (folder / SECRETS / AUTHORITIES_SECRET).write_text(authorities)
    return sorted(path.name for path in (folder / SECRETS).iterdir())


def _refuse_other_content(build: Build, root: Path, copy: Path) -> None:
    """Refuse files that have changed since the plan, such as while the build waited for another."""
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
    """Return the certificates that the build trusts; empty if its programs' own lists are enough.

    A file that pip's settings name replaces the usual authorities, as it does for pip.
    """
    usual = Path(pip_certificates).read_text() if Path(pip_certificates).is_file() else ""
    if build.authorities:
        return combined(usual or system_authorities(), build.authorities)
    return usual


def builder_environment(build: Build, folder: PurePath) -> dict[str, str]:
    """Return the variables for the builder itself, which pulls the base image."""
    if not build.authorities:
        return dict(ENVIRONMENT)
    return {**ENVIRONMENT, "SSL_CERT_FILE": str(folder / SECRETS / AUTHORITIES_SECRET)}


def proxies() -> dict[str, str]:
    """Return the proxy variables of this process. An address may hold a password."""
    return {name: value for name in PROXY_VARIABLES if (value := os.environ.get(name))}
