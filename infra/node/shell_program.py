"""Puts a script and its variables together as one text for `sh -s`.

The text goes by standard input, so that nothing of it stands on a command line. The script sees
the variables that it is given and no other: what happens to be set in the environment of the user
or of the host never changes what a script does.

Standard library only, because the doctor uses it too.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

SCRIPTS = Path(__file__).parent / "scripts"
ROOT_FUNCTIONS = "lib/root.sh"

Privilege = Literal["root", "root-if-possible", "user"]

# Linux starts no program with a variable of 128 KiB, and a list of authorities can be longer.
LONGEST_EXPORTED_BYTES = 100_000

_END_OF_SCRIPT = "DISTTRAIN_END_OF_SCRIPT"
_INCLUDE = re.compile(r"^\. \./(\S+\.sh)$", re.MULTILINE)
_MENTIONED = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)")
_OF_EVERY_PROGRAM = frozenset({"PATH", "HOME"})


def script_text(name: str) -> str:
    """The text of a script of infra/node/scripts.

    A line `. ./lib/file.sh` is replaced by the text of that file, as the shell on the host has no
    such file.

    Args:
        name: path of the script below infra/node/scripts.
    """
    text = (SCRIPTS / name).read_text()
    return _INCLUDE.sub(lambda found: script_text(found[1]).rstrip("\n"), text)


def assemble_program(
    script: str,
    variables: Mapping[str, str],
    privilege: Privilege = "user",
    sudo_password: str = "",
) -> str:
    """The shell text that runs a script with its variables.

    Args:
        script: text of the script.
        variables: the environment of the script. A longer one than LONGEST_EXPORTED_BYTES is for
            the shell alone, and for none of the programs that it starts.
        privilege: `root` runs it as root, by sudo where needed, with an empty environment but for
            `variables`, PATH and HOME. `root-if-possible` runs it as the user where there is no
            way to root, with the reason in the variable ROOT_PROBLEM. `user` runs it as the user;
            the credentials of the user's kubectl come from the environment, so that only those
            variables that the script names and that are not given are taken away.
        sudo_password: for sudo, where it asks for one.
    """
    given = [_given(name, value) for name, value in variables.items()]
    if privilege == "user":
        return "\n".join([*_unset(script, variables), *given, script])
    body = "\n".join([*given, script])
    assert _END_OF_SCRIPT not in body
    return "\n".join(
        [
            f"SUDO_PASSWORD={shlex.quote(sudo_password)}",
            script_text(ROOT_FUNCTIONS),
            "require_root" if privilege == "root" else "prepare_root || true",
            f"run_script \"$@\" <<'{_END_OF_SCRIPT}'",
            body,
            _END_OF_SCRIPT,
            "",
        ]
    )


def _given(name: str, value: str) -> str:
    """A line that sets a variable."""
    words = f"{name}={shlex.quote(value)}"
    if len(value.encode()) > LONGEST_EXPORTED_BYTES:
        return f"unset {name}; {words}"  # what was exported would stay so
    return f"export {words}"


def _unset(script: str, variables: Mapping[str, str]) -> list[str]:
    """A line that removes what the script names and is not given."""
    names = {*_MENTIONED.findall(script)} - {*variables} - _OF_EVERY_PROGRAM
    return [f"unset {' '.join(sorted(names))}"] if names else []
