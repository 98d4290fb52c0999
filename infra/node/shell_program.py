"""Joins a script and its variables into one text for `sh -s`.

The text goes to the shell by standard input, so that nothing of it is on a command line. The script
only sees the variables that it is given. So the environment of the user or of the host never
changes what a script does.

This file uses only the standard library, because the doctor uses it too.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

SCRIPTS = Path(__file__).parent / "scripts"
ROOT_FUNCTIONS = "lib/root.sh"

Privilege = Literal["root", "root-if-possible", "user"]

# Linux starts no program with a variable of 128 KiB or more, and a list of authorities can be that
# long.
LONGEST_EXPORTED_BYTES = 100_000

_END_OF_SCRIPT = "DISTTRAIN_END_OF_SCRIPT"
_INCLUDE = re.compile(r"^\. \./(\S+\.sh)$", re.MULTILINE)
_HERE_DOCUMENT = re.compile(r"<<-?\s*['\"]?([A-Za-z_]\w*)")
_MENTIONED = re.compile(r"\$\{?([A-Z][A-Z0-9_]*)")
_OF_EVERY_PROGRAM = frozenset({"PATH", "HOME"})


def script_text(name: str) -> str:
    """Read a script of infra/node/scripts.

    A line `. ./lib/file.sh` is replaced with the text of that file, because the host does not have
    the file. Comments are left out: Pulumi runs a command again if its text has changed, and a
    better comment is no reason for that.

    Args:
        name: path of the script below infra/node/scripts.
    """
    text = without_comments((SCRIPTS / name).read_text())
    return _INCLUDE.sub(lambda found: script_text(found[1]).rstrip("\n"), text)


def without_comments(text: str) -> str:
    """Return a script without the lines that are comments as a whole.

    This function is pure. Lines of a here-document stay as they are. It does not know quotation
    marks, so in this project's scripts no quoted text of several lines has a line that begins with
    `#`; a test compares the commands of all scripts.
    """
    kept: list[str] = []
    end = ""
    for line in text.splitlines(keepends=True):
        if end:
            end = "" if line.strip() == end else end
        elif line.lstrip().startswith("#"):
            continue
        elif begun := _HERE_DOCUMENT.search(line):
            end = begun[1]
        kept.append(line)
    assert not end, f"the here-document {end} has no end"
    return "".join(kept)


def assemble_program(
    script: str,
    variables: Mapping[str, str],
    privilege: Privilege = "user",
    sudo_password: str = "",
) -> str:
    """Build the shell text that runs a script with its variables.

    Args:
        script: the text of the script.
        variables: the environment of the script. A value that is longer than LONGEST_EXPORTED_BYTES
            is not exported: the shell knows it, and the programs that the shell starts do not.
        privilege: `root` runs the script as root, by sudo if needed. Its environment only has
            `variables`, PATH, HOME, LC_ALL and ROOT_PROBLEM. `root-if-possible` does the same, but
            runs the script as the user if the user cannot become root; the variable ROOT_PROBLEM
            then has the reason. `user` runs the script as the user, in the user's environment, from
            which the user's kubectl may get its credentials. Only variables that the script names
            and that are not given are unset.
        sudo_password: the password for sudo, if sudo asks for one.
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
        return f"unset {name}; {words}"  # An exported variable would stay exported.
    return f"export {words}"


def _unset(script: str, variables: Mapping[str, str]) -> list[str]:
    """A line that unsets the variables that the script names and that are not given."""
    names = {*_MENTIONED.findall(script)} - {*variables} - _OF_EVERY_PROGRAM
    return [f"unset {' '.join(sorted(names))}"] if names else []
