"""Where the Go compiler puts the programs of a tool."""

from pathlib import Path

import pytest

from sandbox import go_build
from sandbox.tools.tool import GoBuild


@pytest.mark.parametrize(
    ("packages", "programs", "place"),
    [
        (("example.org/tool/cmd",), ("tool", "config"), "tool"),
        (("example.org/cmd/one", "example.org/cmd/two"), ("one", "two"), ""),
    ],
)
def test_program_has_the_name_of_its_tool(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    packages: tuple[str, ...],
    programs: tuple[str, ...],
    place: str,
) -> None:
    """The program of a tool with one package gets the name of the tool, because the package may be
    called `cmd`. The programs of several packages have names of their own.
    """
    asked = list[tuple[str, ...]]()

    def stand_in(_: Path, *arguments: str) -> str:
        asked.append(arguments)
        return ""

    monkeypatch.setattr(go_build, "_go", stand_in)
    go_build.go_build(GoBuild("lws", packages), tmp_path, programs)
    (arguments,) = asked
    assert arguments[-len(packages) - 2 :] == ("-o", str(tmp_path / place), *packages)
