"""A script with its variables as one text for `sh -s`, so that nothing is on a command line.

Standard library only: the doctor uses it too.
"""

import shlex
from collections.abc import Mapping

_BODY_END = "DISTTRAIN_END_OF_SCRIPT"


def assemble_program(
    script: str, variables: Mapping[str, str], wrapper: str | None, sudo_password: str
) -> str:
    """The shell text that runs `script` with `variables`; inside `wrapper` when there is one."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    body = "\n".join([*exports, script])
    if wrapper is None:
        return body
    assert _BODY_END not in body
    password = [f"SUDO_PASSWORD={shlex.quote(sudo_password)}"] if sudo_password else []
    call = f"as_root \"$@\" <<'{_BODY_END}'"
    return "\n".join([*password, wrapper, call, body, _BODY_END, ""])
