"""Whether a file of k3s has the text that the settings ask for, on a host with very few
programs.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from infra.node.shell_program import script_text


@pytest.mark.parametrize(
    ("content", "text", "differs"),
    [
        ("a\nb\n", "a\nb", False),
        ("a\nb\n", "a", True),
        ("a", "a", True),
        ("a\n\n", "a", True),
        (None, "a", True),
        (None, "", False),
        ("", "", True),
    ],
)
def test_texts_are_compared_without_cmp(
    content: str | None, text: str, differs: bool, tmp_path: Path
) -> None:
    """The script compares a file with a text without the command `cmp`, which minimal systems lack.
    Without `cmp`, each `pulumi up` would take every file for changed and restart k3s.
    """
    file, programs = tmp_path / "config", tmp_path / "bin"
    programs.mkdir()
    for name in ("cat", "sh"):
        found = shutil.which(name)
        assert found
        (programs / name).symlink_to(found)
    if content is not None:
        file.write_text(content)
    script = f'{script_text("lib/k3s-wanted.sh")}\nwrong_text "$1" "$2"'
    words = ["sh", "-c", script, "sh", str(file), text]
    done = subprocess.run(words, env={"PATH": str(programs)}, capture_output=True, check=False)
    assert (done.returncode == 0, done.stderr) == (differs, b"")
