"""Computes the name of the image as a pure function of everything that goes into it."""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from infra.image.oci import code_layer

VARIABLE = "TRAINER_IMAGE"  # the variable with the name of the image that `pulumi up` has planned
HASH_LENGTH = 12
APPENDED = b"annotations"  # what is added besides the code; another value gives another image
DOCKERFILE = "docker/Dockerfile"
REQUIREMENTS = "trainer/requirements.txt"
# `host/path` in the form that registries and containerd accept:
# https://github.com/distribution/reference/blob/v0.6.0/regexp.go
_HOST = r"(localhost|[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)+|[a-zA-Z0-9.-]+:[0-9]+)(:[0-9]+)?"
_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_HOST}(/{_PART})+")


@dataclass(frozen=True)
class ImagePlan:
    """Names and content of the two images: the dependencies alone, and with the code on top."""

    repository: str
    base_image: str
    torch_index_url: str | None
    deps_hash: str
    code_hash: str
    code_layer: bytes = field(repr=False)
    context: Path | None = None
    """Folder with the Dockerfile of a program's image; None if it is the trainer's image."""

    @property
    def reference(self) -> str:
        """Full name of the image with the code. The tag changes with every input."""
        return f"{self.repository}:{self.deps_hash}-{self.code_hash}"

    @property
    def host(self) -> str:
        """The registry in the image's name, with its port if it has one."""
        return self.repository.partition("/")[0]

    @property
    def deps_reference(self) -> str:
        """Full name of the image without the code. While this name exists, its layers are kept."""
        return f"{deps_repository(self.repository)}:{self.deps_hash}"


def plan_image(
    project_root: Path, repository: str, base_image: str, torch_index_url: str | None
) -> ImagePlan:
    """Name the image after its inputs: Dockerfile, requirements, base, index, code.

    Of the base image only the name counts. If a tag may get another content, use a digest.

    Args:
        project_root: folder of the checkout, of which `docker/Dockerfile` and `trainer/` are read.
        repository: name without tag, such as `localhost/disttrain/trainer`.
        base_image: the image that `FROM` names.
        torch_index_url: a further package index for torch; None or empty: only pip's default.

    Raises:
        ValueError: the repository is not fully qualified. containerd and the kubelet would then
            understand it as two different images.
    """
    check_repository(repository)
    deps = dependencies_hash(project_root, base_image, torch_index_url)
    layer = code_layer(code_files(project_root))
    return ImagePlan(
        repository, base_image, torch_index_url or None, deps, _hash(layer, APPENDED), layer
    )


def dependencies_hash(root: Path, base_image: str, torch_index_url: str | None) -> str:
    """Return the hash of everything in the image without the code.

    `root` is a checkout, or a copy of its files.
    """
    return _hash(
        (root / DOCKERFILE).read_bytes(),
        (root / REQUIREMENTS).read_bytes(),
        base_image.encode(),
        (torch_index_url or "").encode(),
    )


def deps_repository(repository: str) -> str:
    """Return the repository of the images without the code."""
    return f"{repository}-deps"


def changes_since(reference: str, plan: ImagePlan) -> list[str]:
    """Return what differs between an image that was planned earlier and the present plan.

    Args:
        reference: full name of the image that was planned earlier.
        plan: the plan that the same settings give now.

    Returns:
        One text for each kind of input that has changed; empty if the plan is the same.
    """
    repository, _, tag = reference.rpartition(":")
    deps_hash, _, code_hash = tag.partition("-")
    found: list[str] = []
    if repository != plan.repository:
        found.append(f"the repository (imageRepository) was {repository}, is {plan.repository}")
    if deps_hash != plan.deps_hash:
        found.append(
            f"the dependencies ({DOCKERFILE}, {REQUIREMENTS}, imageBase or torchIndexUrl): "
            f"their hash was {deps_hash}, is {plan.deps_hash}"
        )
    if code_hash != plan.code_hash:
        found.append(
            f"the trainer's code (trainer/): its hash was {code_hash}, is {plan.code_hash}"
        )
    return found


def code_files(project_root: Path) -> list[tuple[str, Path]]:
    """Return `(path below /app, file)` of all files of `trainer/` but Python's caches, sorted."""
    files = (
        path
        for path in (project_root / "trainer").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    return sorted((path.relative_to(project_root).as_posix(), path) for path in files)


def check_repository(repository: str) -> None:
    """Raise ValueError unless `repository` is `host[:port]/path` without tag or digest."""
    if not _REPOSITORY.fullmatch(repository):
        raise ValueError(
            f"imageRepository: {repository!r} cannot be used: it is not a whole name in lower "
            "case, without a tag, whose first part is localhost or has a dot or a port. Write "
            "it like localhost/disttrain/trainer or registry.example.org/team/trainer."
        )


def _hash(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:HASH_LENGTH]
