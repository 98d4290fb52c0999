"""Refuses words of `program.command` that only a shell understands, where no shell reads them.

It also refuses a line for a shell whose exit code is not that of the program.
"""

import posixpath
import re
from collections.abc import Sequence

from infra.settings.reader import Reader

# The variables that docs/programs.md names, as a shell or Kubernetes writes them.
_VARIABLE = re.compile(
    r"\$[({]?(DISTTRAIN_[A-Z_]+|PET_[A-Z_]+|(LOCAL_|GROUP_|NODE_|ROLE_)?RANK"
    r"|((LOCAL|GROUP|ROLE)_)?WORLD_SIZE|MASTER_(ADDR|PORT))\b"
)
_TEE_AT_THE_END = re.compile(r"\|&?\s*tee\b[^|]*$")
_OPERATORS = ("&&", "||", "2>&1")  # The sign | alone may be meant as a separator.
_REPLACES_THEM = "composer"  # a launcher that replaces variables in the words of the program


def check_shell_words(reader: Reader, command: Sequence[object]) -> None:
    """Note the first word with a variable of the pods, or that joins commands.

    The program would get it as it is written. It would save to a folder that is called
    `$DISTTRAIN_CHECKPOINT_DIR`, in the container and not on the volume. Words behind an option such
    as `-c` are a text for a shell or for Python.
    """
    for index, word in enumerate(command):
        if not isinstance(word, str):
            continue
        if re.fullmatch("-[a-z]*c", word):
            _check_line(reader, command, index + 1)
            return
        if posixpath.basename(word) == _REPLACES_THEM:
            return
        if word in _OPERATORS:
            reader.problem(
                f"program.command[{index}]",
                word,
                "no shell reads it, so the first program would get it and all words behind it",
                "Let a shell start the programs, as in "
                '[sh, -c, "python prepare.py && exec python train.py"]',
            )
            return
        if found := _VARIABLE.search(word):
            reader.problem(
                f"program.command[{index}]",
                word,
                f"no shell replaces {found[1]} in it, so the program would get it as it is written",
                'Let a shell start the program, as in [sh, -c, "exec python train.py --out '
                '$DISTTRAIN_CHECKPOINT_DIR"]',
            )
            return


def _check_line(reader: Reader, command: Sequence[object], index: int) -> None:
    """Note a line for a shell that ends as `tee` does and not as the program."""
    line = command[index] if index < len(command) else None
    if not isinstance(line, str) or not _TEE_AT_THE_END.search(line):
        return
    if not any("pipefail" in str(word) for word in command):
        reader.problem(
            f"program.command[{index}]",
            line,
            "a shell ends with the exit code of tee, so the run would count as finished if the "
            "program has failed",
            "Leave tee out, as the run's folder has a log of all lines, or write [bash, -o, "
            "pipefail, -c, ...]",
        )
