"""What the image will be called: a pure function of everything that goes into it."""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from infra.image.oci import code_layer

VARIABLE = "TRAINER_IMAGE"  # the name under which `pulumi up` has planned the image
HASH_LENGTH = 12
APPENDED = b"annotations"  # what else goes with the code; a change of it is another image
DOCKERFILE = "docker/Dockerfile"
REQUIREMENTS = "trainer/requirements.txt"
# `host/path` as registries and containerd take it:
# https://github.com/distribution/reference/blob/v0.6.0/regexp.go
_HOST = r"(localhost|[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)+|[a-zA-Z0-9.-]+:[0-9]+)(:[0-9]+)?"
_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_HOST}(/{_PART})+")


@dataclass(frozen=True)
class ImagePlan:
    """Names of the two images: the dependencies alone, and the dependencies plus the code."""

    repository: str
    base_image: str
    torch_index_url: str | None
    deps_hash: str
    code_hash: str
    code_layer: bytes = field(repr=False)
    context: Path | None = None
    """Folder with a Dockerfile of the user's own; None: the image is the trainer's."""

    @property
    def reference(self) -> str:
        """Full name of the trainer image; the tag changes with any input."""
        return f"{self.repository}:{self.deps_hash}-{self.code_hash}"

    @property
    def host(self) -> str:
        """The registry in the name, with its port if it has one."""
        return self.repository.partition("/")[0]

    @property
    def deps_reference(self) -> str:
        """Full name of the image without the code; while it is there, its layers are kept."""
        return f"{deps_repository(self.repository)}:{self.deps_hash}"


def plan_image(
    project_root: Path, repository: str, base_image: str, torch_index_url: str | None
) -> ImagePlan:
    """Name the image after its inputs: Dockerfile, requirements, base, index, code.

    A base image given by a tag counts by its name, not by what the tag means today: give a
    digest where that matters.

    Args:
        project_root: the checkout; reads `docker/Dockerfile` and `trainer/`.
        repository: name without tag, such as `localhost/disttrain/trainer`.
        base_image: what `FROM` names.
        torch_index_url: further package index for torch; None or empty: pip's default alone.

    Raises:
        ValueError: the repository is not fully qualified; containerd and the kubelet would
            then mean two different images by it.
    """
    check_repository(repository)
    deps = dependencies_hash(project_root, base_image, torch_index_url)
    layer = code_layer(code_files(project_root))
    return ImagePlan(
        repository, base_image, torch_index_url or None, deps, _hash(layer, APPENDED), layer
    )


def dependencies_hash(root: Path, base_image: str, torch_index_url: str | None) -> str:
    """Of all that the image without the code is made of; `root` is a checkout, or a copy of it."""
    return _hash(
        (root / DOCKERFILE).read_bytes(),
        (root / REQUIREMENTS).read_bytes(),
        base_image.encode(),
        (torch_index_url or "").encode(),
    )


def deps_repository(repository: str) -> str:
    """The repository of the images without the code."""
    return f"{repository}-deps"


def changes_since(reference: str, plan: ImagePlan) -> list[str]:
    """What differs between an image that was planned earlier and the plan of now.

    Args:
        reference: full name of the image that was planned earlier.
        plan: what the same settings give now.

    Returns:
        One text for each kind of input that has changed; empty: the plan is the same.
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
    """`(path below /app, file)` of all of `trainer/`, sorted; Python's own caches left out."""
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
