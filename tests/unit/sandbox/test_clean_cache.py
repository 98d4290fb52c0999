"""`python3 -m sandbox clean-cache` if the cache and the folder of the clusters are disks of their
own.
"""

from pathlib import Path

import pytest

from sandbox import project_commands
from sandbox.__main__ import main


def test_disks_are_emptied_and_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both folders are emptied, but they and their `lost+found` stay. Otherwise the command would
    fail, because `lost+found` is no name of a cluster.
    """
    for name in ("cache/tools/key", "cache/lost+found", "state/lost+found"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "cache" / "file").touch()
    (tmp_path / "cache" / "link").symlink_to(tmp_path)
    monkeypatch.setenv("DISTTRAIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(project_commands, "STATE_ROOT", tmp_path / "state")
    assert not main(["clean-cache"])
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["cache", "cache/lost+found", "state", "state/lost+found"]
