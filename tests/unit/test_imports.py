"""Who may import whom, see the table in docs/architecture.md."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
# folder -> which of our packages its files may import, besides itself
ALLOWED = {
    "infra": {"trainer"},
    "cli": {"infra"},
    "trainer": set[str](),
    "sandbox": set[str](),
}
OURS = {"infra", "cli", "trainer", "sandbox", "bench", "tests"}


def imported(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names & OURS


@pytest.mark.parametrize("folder", ALLOWED)
def test_packages_import_in_one_direction(folder: str) -> None:
    files = [*(PROJECT / folder).rglob("*.py")]
    assert files
    found = {str(file): imported(file) - ALLOWED[folder] - {folder} for file in files}
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize("module", ["cli.doctor", "infra.tunnel", "infra.imaging.__main__"])
def test_programs_that_up_starts_need_no_sdk(module: str) -> None:
    """They start in a tenth of the time, and run where nothing is installed."""
    program = f"import sys, {module}; print([n for n in sys.modules if n in {{'pulumi', 'yaml'}}])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
