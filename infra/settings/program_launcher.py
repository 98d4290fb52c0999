"""Refuses a launcher such as torchrun where it would start ranks too often, or without others."""

import posixpath
import re
import shlex
from collections.abc import Sequence
from itertools import dropwhile, groupby, takewhile

from infra.names import MASTER_PORT
from infra.no_proxy import is_loopback
from infra.settings.reader import Reader
from infra.world import World
from trainer.config import ProgramConfig

_LAUNCHERS = (
    *("torchrun", "accelerate-launch", "deepspeed", "composer"),
    *("mpirun", "mpiexec", "horovodrun"),
)
_SUBCOMMANDS = {"accelerate": "launch", "fabric": "run"}
_MODULES = (
    *("torch.distributed.run", "torch.distributed.launch"),
    *("accelerate.commands.launch", "deepspeed.launcher.runner"),
)
_TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
# Launchers that read no variable of the pod, and the option that tells them of the other pods.
_TOLD_BY = {
    **dict.fromkeys(
        ("accelerate launch", "accelerate-launch", "accelerate.commands.launch"),
        "--machine_rank $PET_NODE_RANK",
    ),
    **dict.fromkeys(
        ("deepspeed", "deepspeed.launcher.runner"),
        "--hostfile FILE --no_ssh --node_rank $NODE_RANK",
    ),
    "fabric run": "--node-rank $NODE_RANK",
}
# Options of torchrun without a value.
_FLAGS = ("--standalone", "-m", "--module", "--no-python", "--run-path", "--use-env")
_SHELLS = ("sh", "bash", "dash")
_BEFORE = ("exec", "env", "nohup", "time")  # The words behind these are the command that runs.
# The same with a subcommand, behind which there may be options.
_RUNNERS = {
    **dict.fromkeys(("uv", "conda", "mamba", "micromamba", "poetry", "pixi", "pdm"), "run"),
    "nsys": "profile",
}


def check_launcher(reader: Reader, program: ProgramConfig, world: World) -> None:
    """Note a launcher that cannot start the ranks of this run.

    With `program.per: rank`, the default, each rank of several would start all ranks of its pod
    once more, which would look for each other at the same port. With `node`, a launcher may have
    options with which it does not find the other pods.
    """
    started = launchers_of(program.command)
    if program.per == "rank" and started and world.world_size > 1:
        reader.problem(
            "program.per",
            "rank",
            f"{started[0][0]} starts the ranks itself, and would be started {world.world_size} "
            "times, once for each rank",
            "Set node, so that it is started once in each pod, or take it out of program.command",
        )
    if program.per == "node" and world.pods > 1:
        for launcher, words in started:
            _refuse_launcher_alone(reader, launcher, words, world.pods)


def _refuse_launcher_alone(reader: Reader, launcher: str, words: Sequence[str], pods: int) -> None:
    """Note a launcher that would start only the ranks of its own pod, or wait in vain."""
    others = f"the ranks of the other pods, of which the run has {pods} in all"
    if launcher in _TORCHRUN and (option := _keeps_alone(words, pods)):
        reader.problem(
            "program.command",
            option,
            f"torchrun would not find {others}",
            "Leave it out: torchrun reads PET_NNODES, PET_NODE_RANK, PET_MASTER_ADDR and "
            "PET_MASTER_PORT, which each pod has",
        )
    if (told_by := _TOLD_BY.get(launcher)) and not _is_told(words, told_by.split()[0]):
        reader.problem(
            "program.command",
            launcher,
            f"it would not find {others}, as it does not read their variables",
            "Leave it out and set program.per to rank, or give it its options for several machines "
            f"in a line for a shell, such as {told_by} (docs/programs.md, "
            '"Launchers in several pods")',
        )


def _is_told(words: Sequence[str], option: str) -> bool:
    """Whether a launcher's own words have this option, or a shell fills some of them in."""
    own = [*takewhile(lambda word: not word.endswith(".py"), words)]
    names = [word.partition("=")[0].replace("_", "-") for word in own]
    return option.replace("_", "-") in names or any(word.startswith("$") for word in own)


def launchers_of(command: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    """Return each launcher that a command starts, with the words behind it."""
    found = [_launcher(words) for words in _commands_of([*command])]
    return [each for each in found if each[0]]


def _launcher(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the launcher that these words start, and its own words; empty if they start none."""
    if not words:
        return "", ()
    name, more = posixpath.basename(words[0]), words[1:]
    if name in _LAUNCHERS:
        return name, more
    if name in _BEFORE or re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL):
        return _launcher(more)
    if more and _SUBCOMMANDS.get(name) == more[0]:
        return f"{name} {more[0]}", more[1:]
    if more and _RUNNERS.get(name) == more[0]:
        return _behind_options(more[1:])
    if name.startswith("python") and "-m" in more:
        behind = more[more.index("-m") + 1 :]
        return (behind[0], behind[1:]) if behind and behind[0] in _MODULES else ("", ())
    return "", ()


def _behind_options(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the launcher behind options, as `_launcher` does. Each option may have a value."""
    for place in range(len(words)):
        if (found := _launcher(words[place:]))[0]:
            return found
        is_value = place > 0 and words[place - 1].startswith("-")
        if not is_value and not words[place].startswith("-"):
            break
    return "", ()


def _keeps_alone(words: Sequence[str], pods: int) -> str:
    """Return the option of torchrun that keeps it from the other pods; empty if there is none.

    torchrun prefers an option to its variable. A rendezvous other than the static one does not read
    PET_MASTER_ADDR: without an endpoint, it is in the pod itself.
    """
    rest, backend, has_endpoint = [*words], "", False
    while rest and rest[0].startswith("-"):
        name, has_value, value = rest.pop(0).partition("=")
        shown, name = f"{name}{has_value}{value}", name.replace("_", "-")
        if name not in _FLAGS and not has_value and rest:
            value = rest.pop(0)
            shown += f" {value}"
        if _is_alone(name, value, pods):
            return shown
        has_endpoint |= name == "--rdzv-endpoint"
        if name == "--rdzv-backend" and value != "static":
            backend = shown
    return "" if has_endpoint else backend


def _is_alone(name: str, value: str, pods: int) -> bool:
    """Whether an option of torchrun keeps it from the other pods.

    A number of nodes that is the number of pods does not, nor does a range of numbers, or what a
    shell fills in. At MASTER_PORT of the first pod, disttrain's own launcher listens.
    """
    host, _, port = value.rpartition(":")
    alone = {
        "--standalone": True,
        "--nnodes": value.isdecimal() and int(value) != pods,
        "--node-rank": value.isdecimal(),
        "--master-addr": is_loopback(value),
        "--master-port": value == str(MASTER_PORT),
        "--rdzv-endpoint": is_loopback(host) or port == str(MASTER_PORT),
    }
    return alone.get(name, False)


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
