"""What pods get of infra/in_cluster is all that they need."""

import subprocess
import sys
from pathlib import Path

import pytest

from infra.platform import lost_nodes, node_health
from infra.platform.in_cluster import Program


@pytest.mark.parametrize("program", [lost_nodes.PROGRAM, node_health.PROGRAM])
def test_program_starts_from_its_files_alone(program: Program, tmp_path: Path) -> None:
    """Laid out as the pod's volume does it, with the standard library beside."""
    (files, _) = program.volumes("name")
    for item in files["configMap"]["items"]:
        file = tmp_path / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(program.texts[item["key"]])
    *_, module = program.command
    start = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {module} as m; print(m.main)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", start], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("<function main"), done.stderr
