"""What a pinned program is: its releases, and how it is built if they cannot be downloaded."""

from dataclasses import dataclass, field
from pathlib import Path

from sandbox.cache import content_key
from sandbox.downloads import Release

GO_FOLDER = Path(__file__).parent.parent / "go"


@dataclass(frozen=True)
class GoBuild:
    """Packages to build in `sandbox/go/<module>`, with linker variables (symbol, value).

    `module_files` (module, path in it) are files and folders that are copied out of modules.
    `tags` are build tags that leave out parts of a program. `additions` (module, path in it, text)
    are files that a published module lacks, such as built pages that it embeds.
    """

    module: str
    packages: tuple[str, ...] = (".",)
    variables: tuple[tuple[str, str], ...] = ()
    module_files: tuple[tuple[str, str], ...] = ()
    tags: tuple[str, ...] = field(default=(), repr=False)
    additions: tuple[tuple[str, str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Tool:
    """One or more programs of one version. A tool without `releases` is always built."""

    name: str
    version: str
    programs: tuple[str, ...]
    build: GoBuild
    releases: tuple[Release, ...] = ()

    @property
    def key(self) -> str:
        """Name of the cache folder; it changes with the version and with all files of the build."""
        more = ",".join([*self.build.tags, *map(repr, self.build.additions)])
        recipe = repr((self.releases, self.build)) + more
        return f"{self.name}-{self.version}-{content_key(recipe, GO_FOLDER / self.build.module)}"
