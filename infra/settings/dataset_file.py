"""Files of this machine that are copied to the volume: texts, and tokenizers."""

import stat
from dataclasses import dataclass
from pathlib import Path

from infra.names import DATA_MOUNT, INCOMING
from infra.settings.airgap import BundleSettings
from infra.settings.file_checksum import file_checksum
from infra.settings.local_path import local_path
from infra.settings.reader import Reader
from trainer.data.sources import format_by_name, known_ending


@dataclass(frozen=True)
class DatasetFile:
    """A file of this machine that is copied to the volume.

    Args:
        path: path of the file on this machine.
        sha256: checksum of its content, in hexadecimal digits.
        size: number of bytes.
    """

    path: Path
    sha256: str
    size: int

    @property
    def target(self) -> str:
        """The file's path below the volume's root. The checksum is its name.

        An ending such as `.jsonl.gz` is kept, because `prepare` reads the format from it.
        """
        ending = "" if format_by_name(self.path.name) == "text" else known_ending(self.path.name)
        return f"{INCOMING}/{self.sha256}{ending}"

    @property
    def path_in_pods(self) -> str:
        """The file's path in the pods."""
        return f"{DATA_MOUNT}/{self.target}"


def bundled_file(bundle: BundleSettings, purpose: str, version: str) -> DatasetFile | None:
    """Return a file of the bundle; None if the bundle has none of this purpose and version."""
    entries = bundle.manifest.of(purpose, version)
    if not entries:
        return None
    path = bundle.path / entries[0].name
    return DatasetFile(path, entries[0].sha256, path.stat().st_size)


def local_file(reader: Reader, key: str, text: str) -> DatasetFile | None:
    """Return a file of this machine with the checksum of its content; None if it cannot be read."""
    path = local_path(text)
    try:
        found = path.stat()
        # Others may have no end, such as /dev/zero, or wait for somebody who writes into them.
        if stat.S_ISREG(found.st_mode) and found.st_size:
            return DatasetFile(path, file_checksum(path), found.st_size)
        if stat.S_ISREG(found.st_mode):
            reason = "it is empty"
        elif stat.S_ISDIR(found.st_mode):
            reason = "it is a folder, and one file is copied to the volume"
        else:
            reason = "it is not a regular file"
    except OSError as error:
        reason = f"it cannot be read ({error.strerror})"
    reader.problem(key, str(path), reason, "Set the path of a file on this machine")
    return None
