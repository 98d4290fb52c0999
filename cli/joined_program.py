"""Joins modules of this project to one program, which is sent as text to `python3 -c` in a pod.

The pod has Python, but neither this project nor its packages.
"""

from pathlib import Path
from types import ModuleType

_PART = """
part = sys.modules[{name!r}] = types.ModuleType({name!r})
exec(compile({text!r}, {name!r}, "exec"), part.__dict__)
"""


def joined(program: ModuleType, *parts: ModuleType) -> str:
    """Return the text of `program`, which may import from `parts` as it does here.

    Args:
        program: the module that is run.
        parts: the modules of this project that it and other parts import. A part comes after those
            that it imports.
    """
    made = [_PART.format(name=part.__name__, text=_text(part)) for part in parts]
    return "\n".join(["import sys, types", *made, _text(program)])


def _text(module: ModuleType) -> str:
    assert module.__file__ is not None
    return Path(module.__file__).read_text()
