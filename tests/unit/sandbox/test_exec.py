"""Which command `python3 -m sandbox exec` runs on a node."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from sandbox import cluster_commands
from sandbox.__main__ import main


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ([], ["sh"]),
        (["--"], ["sh"]),
        (["ls", "-l"], ["ls", "-l"]),
        (["--", "ls", "-l"], ["ls", "-l"]),
        (["--", "kubectl", "exec", "a", "--", "ls"], ["kubectl", "exec", "a", "--", "ls"]),
        (["sh", "-c", "ls", "--", "a", "--"], ["sh", "-c", "ls", "--", "a", "--"]),
        (["--node", "2", "--", "git", "log", "--", "a"], ["git", "log", "--", "a"]),
    ],
)
def test_command_keeps_its_own_dashes(
    words: list[str], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a `--` in front of the command is the sandbox's. Those behind it are the command's."""
    ran = list[list[str]]()
    cluster = SimpleNamespace(
        kubeconfig=Path("/kubeconfig"),
        bin_dir=Path("/bin"),
        enter=lambda *command, number: ["enter", *command],  # pyright: ignore
    )
    monkeypatch.setattr(cluster_commands, "_cluster", lambda *_, **__: cluster)
    monkeypatch.setattr(os, "execvpe", lambda _, words, __: ran.append(words))  # pyright: ignore
    assert main(["exec", *words]) == 0
    assert ran == [["enter", *command]]
