"""`disttrain completion`: a script with which bash, zsh or fish completes commands and options."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, cast

SHELLS = ("bash", "zsh", "fish")
ZSH = """\
autoload -U +X compinit bashcompinit
(( $+functions[compdef] )) || compinit -D
bashcompinit
"""
"""With it zsh completes as bash does; a fresh zsh does not complete at all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The one argument of `disttrain completion`."""
    parser.add_argument("shell", choices=SHELLS, help="your shell")


def run(arguments: argparse.Namespace) -> int:
    """Exit status: 0."""
    from cli.__main__ import COMMANDS, parser_of  # which imports this file when it is asked for

    print(script(arguments.shell, options_of(parser_of(COMMANDS))), end="")
    return 0


def options_of(parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """The words that each subcommand takes: its long options, its choices, and the words of its own
    commands, such as those of `runs delete`. Pure."""
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
    """argparse has no public name for them."""
    return list(cast(Any, parser)._actions)


def script(shell: str, options: Mapping[str, Sequence[str]]) -> str:
    """The script. Pure.

    Args:
        shell: bash, zsh or fish.
        options: words that may follow each subcommand.
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
