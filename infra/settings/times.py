"""Refuses dates that Pulumi has changed, because they have no quotation marks in the stack's file.

Pulumi's engine makes `2026-11-28 00:00:00 +0000 UTC` of the date 2026-11-28. A training would get
that text in `podEnvironment` or `program.command`, where the user wrote the date alone.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import cast

from infra.settings.engine_yaml import TIME_OF_ENGINE
from infra.settings.reader import Reader


def check_times(reader: Reader, raw: Mapping[str, str]) -> None:
    """Note each such value, in place of the other problems of the value and of what contains it.

    Call it after all other checks of values. Keys that nothing has read are left out: what is wrong
    is the key.

    Args:
        reader: collects the problems that are found.
        raw: `{key: text}` without the project's prefix; objects are JSON text.
    """
    for key, text in raw.items():
        if key not in reader.keys or TIME_OF_ENGINE.search(text) is None:
            continue
        for path, value in _texts_in(key, _content(text)):
            if TIME_OF_ENGINE.fullmatch(value):
                reader.problems = [
                    problem for problem in reader.problems if not _leads_to(problem.key, path)
                ]
                reason = "Pulumi made this of a date without quotation marks"
                hint = "Put it in quotation marks in the stack's file"
                reader.problem(path, value, reason, hint)


def _leads_to(key: str, path: str) -> bool:
    """Whether a key is the path of a value, or of a mapping or a list that contains the value."""
    parts = _parts(key)
    return _parts(path)[: len(parts)] == parts


def _parts(path: str) -> list[str]:
    """Return the parts of a path. It may be written like `a.b[0]`, or like `a['b'][0]`."""
    return re.findall(r"[^][.'\"]+", path)


def _content(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _texts_in(path: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield each text in a value, with its key as messages show it."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, inner in cast(Mapping[str, object], value).items():
            yield from _texts_in(f"{path}.{name}", inner)
    elif isinstance(value, list):
        for index, inner in enumerate(cast(list[object], value)):
            yield from _texts_in(f"{path}[{index}]", inner)
