"""Installs the sandbox's pinned programs from official releases, or builds them from Go modules."""

import os
from pathlib import Path

from sandbox.cache import cached_folder, content_key, is_cached
from sandbox.downloads import Unavailable, install_release
from sandbox.go_build import go_build
from sandbox.say import phase, say
from sandbox.tools.cluster import LANGUAGE_HOST, LANGUAGE_HOST_BUILD, TOOLS
from sandbox.tools.services import GPU_STAND_IN
from sandbox.tools.tool import Tool


def bin_dir() -> Path:
    """A folder with the programs of `TOOLS`; what the cache lacks is downloaded or built.

    Pulumi's providers are not in it, because the engine would prefer a provider on PATH to the
    installed one.
    """
    folders = [tool_folder(tool) for tool in TOOLS]
    key = content_key("without providers", *(str(folder) for folder in folders))

    def link_all(merged: Path) -> None:
        for folder, tool in zip(folders, TOOLS, strict=True):
            if not tool.name.startswith("pulumi-resource-"):
                for program in tool.programs:
                    (merged / program).symlink_to(folder / program)

    return cached_folder("bin", key, link_all)


def tool_folder(tool: Tool) -> Path:
    """The cache folder with the tool's programs and a file `origin` that says how it was made."""

    def make(folder: Path) -> None:
        origin = _download(tool, folder) or _build(tool, folder)
        for program in tool.programs:
            assert (folder / program).exists(), f"{tool.name} came without {program}"
        (folder / "origin").write_text(origin + "\n")

    return cached_folder("tools", tool.key, make)


def is_missing(tool: Tool) -> bool:
    """Whether the cache lacks the tool, so that it would have to be downloaded or built."""
    return not is_cached("tools", tool.key)


def origin(tool: Tool) -> str:
    """How the tool in the cache was made, such as `built from Go modules 1.34.2`."""
    return (tool_folder(tool) / "origin").read_text().strip()


def origins() -> dict[str, str]:
    """How each of `TOOLS` was made, by its name."""
    return {tool.name: origin(tool) for tool in TOOLS}


def _download(tool: Tool, folder: Path) -> str | None:
    if not tool.releases or os.uname().machine != "x86_64":
        return None
    try:
        for release in tool.releases:
            install_release(release, folder, default_name=release.url.rsplit("/", 1)[1])
    except Unavailable as reason:
        say(f"  {tool.name} {tool.version}: building it ({reason})")
        return None
    say(f"  {tool.name} {tool.version}: official release")
    return f"official release {tool.version}"


def _build(tool: Tool, folder: Path) -> str:
    with phase(f"build {tool.name} {tool.version}"):
        go_build(tool.build, folder, tool.programs)
        if tool.name == "pulumi":
            go_build(LANGUAGE_HOST_BUILD, folder, ("pulumi-language-python",))
            return f"built from Go modules; its Python language host is {LANGUAGE_HOST}"
    if tool is GPU_STAND_IN:
        return "stand-in of this project"
    if tool.name == "pulumi-resource-command":
        return "stand-in of this project (the provider is not published as a Go module)"
    return f"built from Go modules {tool.version}"
