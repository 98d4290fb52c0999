"""Chooses what the mirror serves: k3s itself if its release host answers, or else the stand-ins."""

import functools
import hashlib
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from sandbox.cache import cached_folder, content_key
from sandbox.downloads import Release, Unavailable, fetch, install_release

STAND_IN = Path(__file__).parent / "stand_in"
OLD, VERSION = "v1.33.6+k3s1", "v1.34.2+k3s1"
MARK = shutil.ignore_patterns(".complete")  # a file of the cache
BINARY_BYTES = 4_000_000  # the stand-in's size, so that its download takes a moment


@dataclass(frozen=True)
class Publisher:
    """The addresses below which a release's binaries and installer lie, with their checksums."""

    binaries: str
    installers: str

    def files(self, version: str) -> tuple[Release, ...]:
        """Return the k3s binary for this machine, the archive of k3s' images, and the installer."""
        arch = "arm64" if platform.machine() == "aarch64" else "amd64"
        binary = "k3s-arm64" if arch == "arm64" else "k3s"
        tag = version.replace("+", "%2B")
        binaries, installer = f"{self.binaries}/{tag}", f"{self.installers}/{tag}/install.sh"
        return (
            Release(f"{binaries}/{binary}", f"{binaries}/sha256sum-{arch}.txt", {}),
            Release(f"{binaries}/{images_of(arch)}", f"{binaries}/sha256sum-{arch}.txt", {}),
            Release(installer, f"{installer}.sha256sum", {}),
        )


GITHUB = Publisher(
    "https://github.com/k3s-io/k3s/releases/download",
    "https://raw.githubusercontent.com/k3s-io/k3s",
)


@dataclass(frozen=True)
class Source:
    """Where the files come from. Without a publisher they are the stand-ins, and `why` says why."""

    publisher: Publisher | None
    why: str = ""

    def __str__(self) -> str:
        return "k3s itself" if self.publisher else f"stand-ins of k3s ({self.why})"

    def fill(self, version: str, folder: Path) -> None:
        """Put the files of a release into a folder: binary, images, installer, checksum files."""
        if self.publisher:
            shutil.copytree(
                downloaded(self.publisher, version), folder, dirs_exist_ok=True, ignore=MARK
            )
        else:
            stand_in(version, folder)


def choose(publisher: Publisher) -> Source:
    """Return the publisher as the source if it has the checksums, or else the stand-ins.

    A host that does not answer is noticed within seconds.
    """
    try:
        for file in publisher.files(VERSION):
            fetch(file.checksums_url)
    except Unavailable as reason:
        return Source(None, str(reason))
    return Source(publisher)


@functools.cache
def session_source() -> Source:
    """Return the source for this session; it is chosen only once."""
    return choose(GITHUB)


def downloaded(publisher: Publisher, version: str) -> Path:
    """Return a folder of the cache with the verified files of a release.

    Raises:
        Unavailable: the publisher no longer has the files.
        ValueError: a checksum differs.
    """

    def make(folder: Path) -> None:
        for file in publisher.files(version):
            install_release(file, folder, name_of(file.url))
            (folder / name_of(file.checksums_url)).write_bytes(fetch(file.checksums_url))

    key = content_key(*(file.url for file in publisher.files(version)))
    return cached_folder("k3s-release", key, make)


def stand_in(version: str, folder: Path) -> None:
    """Write the stand-ins' files. The binary and the images are the same for both architectures."""
    program = (STAND_IN / "k3s").read_text().replace("@VERSION@", version)
    padding = "# " + "x" * 77 + "\n"
    content = program + padding * (BINARY_BYTES // len(padding))
    # No program here reads their content.
    images = f"images of {version}\n" * 100_000
    for arch, name in (("amd64", "k3s"), ("arm64", "k3s-arm64")):
        publish(folder, f"sha256sum-{arch}.txt", {name: content, images_of(arch): images})
    installer = (STAND_IN / "install.sh").read_text()
    publish(folder, "install.sh.sha256sum", {"install.sh": installer})


def publish(folder: Path, sums: str, files: dict[str, str]) -> None:
    """Write files into a folder, and a file `sums` with their sha256 checksums."""
    lines: list[str] = []
    for name, content in files.items():
        (folder / name).write_text(content)
        lines.append(f"{hashlib.sha256(content.encode()).hexdigest()}  {name}\n")
    (folder / sums).write_text("".join(lines))


def images_of(arch: str) -> str:
    return f"k3s-airgap-images-{arch}.tar.zst"


def name_of(url: str) -> str:
    return url.rpartition("/")[2]
