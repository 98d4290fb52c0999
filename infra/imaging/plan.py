"""What the image will be called: a pure function of everything that goes into it."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HASH_LENGTH = 12
CODE_SUFFIXES = (".py", ".yaml", ".txt")


@dataclass(frozen=True)
class ImagePlan:
    """Names of the two images: dependencies alone, and dependencies plus code."""

    repository: str
    deps_hash: str
    code_hash: str

    @property
    def reference(self) -> str:
        """Full name of the trainer image; the tag changes with any input."""
        return f"{self.repository}:{self.deps_hash}-{self.code_hash}"

    @property
    def deps_reference(self) -> str:
        """Full name of the image without the code; its name keeps the big layers alive."""
        return f"{self.repository}-deps:{self.deps_hash}"


def plan_image(
    project_root: Path, repository: str, base_image: str, torch_index_url: str | None
) -> ImagePlan:
    """Hash the inputs of the image.

    Args:
        project_root: the checkout; `docker/Dockerfile` and `trainer/` are read.
        repository: name without tag, such as `localhost/disttrain/trainer`.
        base_image: what `FROM` names.
        torch_index_url: extra package index, or None.

    Raises:
        ValueError: the repository is not fully qualified; containerd would take such a name for
            one of docker.io and the kubelet would not find the image.
    """
    check_repository(repository)
    deps = _hash(
        [
            ("Dockerfile", (project_root / "docker" / "Dockerfile").read_bytes()),
            ("requirements", (project_root / "trainer" / "requirements.txt").read_bytes()),
            ("base", base_image.encode()),
            ("index", (torch_index_url or "").encode()),
        ]
    )
    code = _hash((name, path.read_bytes()) for name, path in code_files(project_root))
    return ImagePlan(repository, deps, code)


def code_files(project_root: Path) -> list[tuple[str, Path]]:
    """`(path in the image below /app, file)` of the trainer's code, sorted."""
    folder = project_root / "trainer"
    files = (
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in CODE_SUFFIXES and "__pycache__" not in path.parts
    )
    return sorted((str(path.relative_to(project_root)), path) for path in files)


def check_repository(repository: str) -> None:
    """Raise ValueError unless `repository` is `host[:port]/path` in lower case without a tag."""
    host, _, path = repository.partition("/")
    qualified = "." in host or ":" in host or host == "localhost"
    if not qualified or not re.fullmatch(r"[a-z0-9]+([._/-]+[a-z0-9]+)*", path):
        raise ValueError(
            f"imageRepository: {repository!r} is not allowed; allowed: a fully qualified name "
            "in lower case without a tag, such as localhost/disttrain/trainer"
        )


def _hash(parts: Iterator[tuple[str, bytes]] | list[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, content in parts:
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:HASH_LENGTH]
