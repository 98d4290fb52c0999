"""The trainer image's base where no registry can be reached: Debian by debootstrap, for buildah."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from sandbox.cache import cache_dir, content_key, locked
from sandbox.say import phase

NAME = "localhost/disttrain/base:bookworm"
SUITE = "bookworm"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
RECIPE_LABEL = "disttrain.dev/recipe"
DEFAULT_MIRROR = "http://deb.debian.org/debian"


def ensure_base_image() -> None:
    """Make `NAME` in buildah's storage, unless one of the same recipe is there.

    Raises:
        RuntimeError: debootstrap or buildah failed; ends with its last lines.
    """
    recipe = content_key(NAME, SUITE, *PACKAGES, Path(__file__))
    with locked("base-image"):
        if _label_of_image() == recipe:
            return
        with phase(f"build {NAME}"):
            _build(recipe)


def debian_mirror(sources: list[str]) -> str:
    """The first Debian mirror in apt's source files (both formats), else Debian's own.

    Args:
        sources: lines of /etc/apt/sources.list and /etc/apt/sources.list.d/*.
    """
    for line in sources:
        words = line.split()
        if words[:1] in (["deb"], ["URIs:"]):
            for word in words[1:]:
                if word.startswith("http") and word.rstrip("/").endswith("/debian"):
                    return word
    return DEFAULT_MIRROR


def _label_of_image() -> str | None:
    asked = subprocess.run(
        ["buildah", "inspect", "--type", "image", "--format", _label_template(), NAME],
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() if asked.returncode == 0 else None


def _label_template() -> str:
    return f'{{{{index .OCIv1.Config.Labels "{RECIPE_LABEL}"}}}}'


def _build(recipe: str) -> None:
    apt = Path("/etc/apt")
    files = [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]
    lines = [line for file in files if file.is_file() for line in file.read_text().splitlines()]
    with tempfile.TemporaryDirectory(dir=cache_dir()) as scratch:
        root = Path(scratch) / "root"
        _run(
            [
                *("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"),
                *(SUITE, str(root), debian_mirror(lines)),
            ]
        )
        for leftover in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(root / leftover)
            (root / leftover).mkdir()
        container = _run(["buildah", "from", "scratch"]).strip()
        try:
            _run(["buildah", "add", "--quiet", container, str(root), "/"])
            _run(["buildah", "config", "--label", f"{RECIPE_LABEL}={recipe}", container])
            _run(["buildah", "commit", "--quiet", "--format=oci", container, NAME])
        finally:
            _run(["buildah", "rm", container])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise RuntimeError(f"{' '.join(command[:2])} failed:\n{tail}")
    return done.stdout
