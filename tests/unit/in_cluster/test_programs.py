"""The files of infra/in_cluster that a pod gets are all that its program needs."""

import subprocess
import sys
from pathlib import Path

import pytest

from infra.platform import lost_nodes, node_health
from infra.platform.in_cluster import Program


@pytest.mark.parametrize("program", [lost_nodes.PROGRAM, node_health.PROGRAM])
def test_program_starts_from_its_files_alone(program: Program, tmp_path: Path) -> None:
    """The program of a pod can be imported from the files in the pod's volume with nothing but the
    standard library.
    """
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
