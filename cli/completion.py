"""`disttrain completion`: prints a script that completes commands and options in a shell."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, cast

SHELLS = ("bash", "zsh", "fish")
ZSH = """\
autoload -U +X compinit bashcompinit
(( $+functions[compdef] )) || compinit -D
bashcompinit
"""
"""These lines load zsh's emulation of bash's completion. A fresh zsh completes nothing."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the one argument of `disttrain completion`."""
    parser.add_argument(
        "shell", choices=SHELLS, metavar=f"{{{','.join(SHELLS)}}}", help="your shell"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the script; the exit status is 0."""
    # Not at the top of the file, because cli.__main__ imports this module.
    from cli.__main__ import COMMANDS, parser_of

    print(script(arguments.shell, options_of(parser_of(COMMANDS))), end="")
    return 0


def options_of(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """Return the words that each subcommand takes. This function is pure.

    They are its long options, the choices of its arguments, and the words of its own subcommands,
    such as those of `runs delete`.
    """
    (found,) = [a for a in _actions(parser) if a.dest == "subcommand"]
    subcommands = cast(dict[str, argparse.ArgumentParser], found.choices)
    return {name: _words(inner) for name, inner in subcommands.items()}


def _words(parser: argparse.ArgumentParser) -> list[str]:
    found = [word for a in _actions(parser) for word in a.option_strings if len(word) > 2]
    for choices in (a.choices for a in _actions(parser) if not a.option_strings and a.choices):
        found += map(str, choices)
        inner = cast(dict[str, object], choices).values() if isinstance(choices, dict) else ()
        for command in inner:
            found += _words(command) if isinstance(command, argparse.ArgumentParser) else []
    return list(dict.fromkeys(found))


def _actions(parser: argparse.ArgumentParser) -> list[Any]:
    """Return the actions of a parser, for which argparse has no public name."""
    return list(cast(Any, parser)._actions)


def script(shell: str, options: Mapping[str, Sequence[str]]) -> str:
    """Return the script for a shell. This function is pure.

    Args:
        shell: bash, zsh or fish.
        options: for each subcommand the words that may follow it.
    """
    if shell == "fish":
        lines = [f"complete -c disttrain -f -n __fish_use_subcommand -a '{' '.join(options)}'"]
        lines += [
            f"complete -c disttrain -n '__fish_seen_subcommand_from {name}' -a '{' '.join(words)}'"
            for name, words in options.items()
        ]
        return "\n".join(lines) + "\n"
    cases = "\n".join(
        f"    {name}) words='{' '.join(words)}' ;;" for name, words in options.items()
    )
    as_bash = f"""\
_disttrain() {{
  local words='{" ".join(options)}'
  case ${{COMP_WORDS[1]}} in
{cases}
  esac
  [ "$COMP_CWORD" -gt 1 ] || words='{" ".join(options)}'
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _disttrain disttrain ./disttrain
"""
    return as_bash if shell == "bash" else f"{ZSH}{as_bash}"
