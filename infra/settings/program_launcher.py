"""Refuses a launcher such as torchrun where it would start ranks too often, or without others."""

import posixpath
import re
import shlex
from collections.abc import Sequence
from itertools import dropwhile, groupby

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
# Launchers that do not read the variables of the pods, with the option that tells them of others.
_NEEDS = {
    **dict.fromkeys(
        ("accelerate launch", "accelerate-launch", "accelerate.commands.launch"), "--machine_rank"
    ),
    **dict.fromkeys(("deepspeed", "deepspeed.launcher.runner"), "--no_ssh"),
    "fabric run": "--node-rank",
}
# Options of torchrun without a value.
_FLAGS = ("--standalone", "-m", "--module", "--no-python", "--run-path", "--use-env")
_OWN_HOST = re.compile(r"(localhost|127\.\d+\.\d+\.\d+)(:\d*)?")
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
    once more, which would look for each other at the same port. With `node`, a launcher may not
    look for the other pods: a torchrun because of its options, and others without an option.
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
    if program.per == "rank" or world.pods == 1:
        return
    for launcher, words in started:
        if launcher in _TORCHRUN and (option := _keeps_alone(words, world.pods)):
            reader.problem(
                "program.command",
                option,
                "torchrun would not find the ranks of the other pods, of which the run has "
                f"{world.pods} in all",
                "Leave it out: torchrun reads PET_NNODES, PET_NODE_RANK and PET_MASTER_ADDR, which "
                "each pod has",
            )
        if (needed := _NEEDS.get(launcher)) and not _is_told(words, needed):
            reader.problem(
                "program.command",
                launcher,
                f"without {needed} and the number of the pod, it would not find the ranks of the "
                f"other pods, of which the run has {world.pods} in all",
                "Take it out and set program.per to rank, with which each rank has the variables "
                "that torchrun sets, or give it the options in docs/programs.md, "
                '"Launchers in several pods"',
            )


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

    torchrun prefers an option to its variable. A number of nodes that is the number of pods is
    fine, and so is a range of numbers, or what a shell fills in. A rendezvous other than the static
    one does not read PET_MASTER_ADDR: without an endpoint, it is in the pod itself.
    """
    rest, given = [*words], dict[str, tuple[str, str]]()
    while rest and rest[0].startswith("-"):
        name, has_value, value = rest.pop(0).partition("=")
        shown, name = f"{name}{has_value}{value}", name.replace("_", "-")
        if name not in _FLAGS and not has_value and rest:
            value = rest.pop(0)
            shown += f" {value}"
        given[name] = value, shown
    for name, (value, shown) in given.items():
        is_other = name == "--nnodes" and value.isdecimal() and int(value) != pods
        is_here = name in ("--master-addr", "--rdzv-endpoint") and _OWN_HOST.fullmatch(value)
        is_lost = name == "--rdzv-backend" and value != "static" and "--rdzv-endpoint" not in given
        is_fixed = name == "--node-rank" and value.isdecimal()
        if name == "--standalone" or is_other or is_here or is_lost or is_fixed:
            return shown
    return ""


def _is_told(words: Sequence[str], option: str) -> bool:
    """Whether the words have the option, and not with a number, which each pod would get."""
    for word, behind in zip(words, [*words[1:], ""], strict=True):
        name, has_value, value = word.partition("=")
        if name.replace("_", "-") == option.replace("_", "-"):
            return not (value if has_value else behind).isdecimal()
    return False


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
