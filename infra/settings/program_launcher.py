"""Refuses a launcher such as torchrun where the program is started once for each rank."""

import posixpath
import shlex
from collections.abc import Sequence

from infra.settings.reader import Reader
from infra.world import World
from trainer.config import ProgramConfig

_LAUNCHERS = ("torchrun", "deepspeed", "mpirun", "mpiexec", "horovodrun")
_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_SHELLS = ("sh", "bash", "dash")


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
    words = _words_of(command)
    if not words:
        return ""
    name, more = posixpath.basename(words[0]), words[1:]
    if name in _LAUNCHERS:
        return name
    if name == "accelerate" and more[:1] == ["launch"]:
        return "accelerate launch"
    if name.startswith("python") and "-m" in more:
        module = more[more.index("-m") + 1 :][:1]
        return module[0] if module and module[0] in _MODULES else ""
    return ""


def _words_of(command: Sequence[str]) -> list[str]:
    """Return the words of the command, or of the line that it gives to a shell."""
    words = [*command]
    if len(words) > 2 and posixpath.basename(words[0]) in _SHELLS and words[1].endswith("c"):
        try:
            words = shlex.split(words[2])
        except ValueError:  # A quotation mark is not closed, and the shell will say so.
            return []
    return words[1:] if words[:1] == ["exec"] else words
