"""The trainer image's base where no registry can be reached: Debian by debootstrap, for buildah."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from sandbox.cache import cache_dir, content_key, locked
from sandbox.say import phase, say

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
        old = _run(["buildah", "images", "--quiet", "--filter", f"reference={NAME}"]).split()
        with phase(f"build {NAME}"):
            _build(recipe)
        for image in old:
            try:
                _run(["buildah", "rmi", image])
            except RuntimeError as error:  # a container of a broken-off build still uses it
                say(f"  the former {NAME} stays: {error}")


def debian_mirror(sources: Sequence[str]) -> str:
    """The mirror from which this machine's apt takes Debian `SUITE`, else Debian's own.

    A mirror of another Debian release (its path ends in /debian) serves as well.

    Args:
        sources: the texts of /etc/apt/sources.list and of the files in sources.list.d, in either
            of the two formats of sources.list(5).
    """
    entries = [entry for text in sources for entry in _entries(text)]
    of_suite = (uri for uri, suites in entries if SUITE in suites)
    of_debian = (uri for uri, _ in entries if uri.rstrip("/").endswith("/debian"))
    return next(of_suite, None) or next(of_debian, None) or DEFAULT_MIRROR


def _entries(text: str) -> Iterator[tuple[str, list[str]]]:
    """`(http address, suites)` of each source with component main."""
    for uris, suites, components in _sources(text):
        for uri in uris:
            if "main" in components and uri.startswith(("http://", "https://")):
                yield uri, suites


def _sources(text: str) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """`(addresses, suites, components)` of each source of binary packages."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for line in lines:
        words = re.sub(r"\[.*?\]", "", line).split()
        if words[:1] == ["deb"] and len(words) > 3:
            yield [words[1]], [words[2]], words[3:]
    for stanza in "\n".join(lines).split("\n\n"):
        pairs = (line.partition(":") for line in stanza.splitlines())
        fields = {name.lower(): value.split() for name, _, value in pairs}
        if "deb" in fields.get("types", []) and fields.get("enabled") != ["no"]:
            yield fields.get("uris", []), fields.get("suites", []), fields.get("components", [])


def debian_sources() -> list[str]:
    """The texts of apt's source lists on this machine."""
    apt = Path("/etc/apt")
    folder = apt / "sources.list.d"
    files = [
        apt / "sources.list",
        *sorted(folder.glob("*.list")),
        *sorted(folder.glob("*.sources")),
    ]
    return [file.read_text() for file in files if file.is_file()]


def apt_proxy() -> dict[str, str]:
    """apt's own proxy for debootstrap, where the environment names none."""
    if os.environ.get("http_proxy") or shutil.which("apt-config") is None:
        return {}
    line = _run(["apt-config", "shell", "http_proxy", "Acquire::http::Proxy"])
    return dict(part.split("=", 1) for part in shlex.split(line))


def _label_of_image() -> str | None:
    template = f'{{{{index .OCIv1.Config.Labels "{RECIPE_LABEL}"}}}}'
    asked = subprocess.run(
        ["buildah", "inspect", "--type", "image", "--format", template, NAME],
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() if asked.returncode == 0 else None


def _build(recipe: str) -> None:
    with tempfile.TemporaryDirectory(dir=cache_dir()) as scratch:
        root = Path(scratch) / "root"
        _run(
            [
                # without a keyring it would take whatever the mirror sends
                *("debootstrap", "--variant=minbase", "--force-check-gpg"),
                *(f"--include={','.join(PACKAGES)}", SUITE, str(root)),
                debian_mirror(debian_sources()),
            ],
            environment=apt_proxy(),
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


def _run(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise RuntimeError(f"{' '.join(command[:2])} failed:\n{tail}")
    return done.stdout
