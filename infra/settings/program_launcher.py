"""Refuses a launcher such as torchrun where the program is started once for each rank."""

import posixpath
import re
import shlex
from collections.abc import Sequence
from itertools import dropwhile, groupby

from infra.settings.reader import Reader
from infra.world import World
from trainer.config import ProgramConfig

_LAUNCHERS = ("torchrun", "deepspeed", "mpirun", "mpiexec", "horovodrun")
_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_SHELLS = ("sh", "bash", "dash")
_BEFORE = ("exec", "env", "nohup", "time")  # The words behind these are the command that runs.


def check_launcher(reader: Reader, program: ProgramConfig, world: World) -> None:
    """Note a launcher with `program.per: rank`, the default, in a run of several ranks.

    Each rank would start all ranks of its pod once more, which would look for each other at the
    same port.
    """
    launcher = launcher_of(program.command)
    if program.per == "rank" and launcher and world.world_size > 1:
        reader.problem(
            "program.per",
            "rank",
            f"{launcher} starts the ranks itself, and would be started {world.world_size} times, "
            "once for each rank",
            "Set node, so that it is started once in each pod, or take it out of program.command",
        )


def launcher_of(command: Sequence[str]) -> str:
    """Return the launcher that a command starts, such as `torchrun`; empty if it starts none."""
    found = [_launcher(words) for words in _commands_of([*command])]
    return next((launcher for launcher in found if launcher), "")


def _launcher(words: Sequence[str]) -> str:
    """Return the launcher that these words start; empty if they start none."""
    if not words:
        return ""
    name, more = posixpath.basename(words[0]), words[1:]
    if name in _LAUNCHERS:
        return name
    if name in _BEFORE or re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
        return _launcher(more)
    if name == "accelerate" and more[:1] == ["launch"]:
        return "accelerate launch"
    if name.startswith("python") and "-m" in more:
        module = more[more.index("-m") + 1 :][:1]
        return module[0] if module and module[0] in _MODULES else ""
    return ""


def _commands_of(words: list[str]) -> list[list[str]]:
    """Return the words of the command, or of each command in the line that it gives to a shell."""
    if not words or posixpath.basename(words[0]) not in _SHELLS:
        return [words]
    rest = list(dropwhile(lambda word: not re.fullmatch("-[a-z]*c", word), words[1:]))
    if len(rest) < 2:
        return []
    line = rest[1].replace("\\\n", " ").replace("\n", " ; ")
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        found = [*lexer]
    except ValueError:  # A quotation mark is not closed, and the shell will say so.
        return []
    groups = groupby(found, key=lambda word: set(word) <= set(lexer.punctuation_chars))
    return [list(group) for is_separator, group in groups if not is_separator]
