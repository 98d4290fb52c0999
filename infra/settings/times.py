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
    """Note each such value, in place of what earlier checks have noted about it.

    `reader` puts the reason into words.
    """
    for key, text in raw.items():
        if TIME_OF_ENGINE.search(text) is None:
            continue
        for path, value in _texts_in(key, _content(text)):
            if TIME_OF_ENGINE.fullmatch(value):
                reader.problems = [
                    problem for problem in reader.problems if not _is_about(problem, path, value)
                ]
                reader.problem(path, value, "it is a time", "Put it in quotation marks")


def _is_about(problem: str, path: str, value: str) -> bool:
    """Whether a message is about this value, and not about an object of which it is a part."""
    key = re.split(r"[.\[]", path)[0]
    if problem.startswith((f"{path}: ", f"{key}: {value!r} ")):
        return True
    return problem.startswith(f"{key}: ") and value in problem.partition(" cannot be used: ")[2]


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
