"""Finds the settings that a page of the docs shows, in commands or in parts of a stack's file."""

import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from infra.settings.project import own_values

_FENCED = re.compile(r"^( *)```\w*\n(?P<text>.*?)^ *```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?P<text>(?:    .+\n)+)")
_HEADLINE = re.compile(r"^#+ (.+)$", re.MULTILINE)
_STEP = re.compile(r'\["(?P<quoted>[^"]*)"\]|\[(?P<index>\d+)\]|(?P<name>[^.\[\]]+)')
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9]\d*)")
ASKED_FOR = "what the user types"


@dataclass(frozen=True)
class Block:
    """Settings that a page shows together.

    Args:
        page: the name of the page's file.
        headline: the last headline above the block.
        number: the number of the block among the page's blocks with settings, from 1.
        settings: the values by key.
        secret_keys: the keys whose values the block encrypts.
    """

    page: str
    headline: str
    number: int
    settings: Mapping[str, Any]
    secret_keys: frozenset[str]


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page that set something, in the page's order."""
    text, number = page.read_text(), 0
    found = [*_FENCED.finditer(text), *_INDENTED.finditer(_without_fences(text))]
    for block in sorted(found, key=lambda block: block.start()):
        content = textwrap.dedent(block["text"])
        settings, secret_keys = _by_commands(content)
        settings |= _by_file(content)
        if settings:
            number += 1
            headline = _HEADLINE.findall(text, 0, block.start())[-1]
            yield Block(page.name, headline, number, settings, frozenset(secret_keys))


def _without_fences(text: str) -> str:
    """Return the text with fenced blocks overwritten, so that all positions in it stay the same."""
    return _FENCED.sub(lambda found: re.sub(r"[^\n]", "x", found[0]), text)


def _by_commands(text: str) -> tuple[dict[str, Any], set[str]]:
    """Return the settings that the commands in the text set, and the keys that they encrypt."""
    settings, secret_keys = dict[str, Any](), set[str]()
    for command in re.findall(r"^pulumi config set (.*)$", re.sub(r" && ", "\n", text), re.M):
        words = _without_files(shlex.split(command, comments=True))
        key, *values = [word for word in words if not word.startswith("--")]
        value = values[0] if values else ASKED_FOR
        if "--path" in words:
            _set_path(settings, key, value)
        else:
            settings[key] = value
        if "--secret" in words:
            secret_keys.add(re.split(r"[.\[]", key)[0])
    return settings, secret_keys


def _without_files(words: list[str]) -> list[str]:
    """Return the words without `<file` and `< file`: the value is what is in that file."""
    before = ["", *words]
    return [
        word
        for word, previous in zip(words, before, strict=False)
        if word[0] != "<" and previous != "<"
    ]


def _set_path(settings: dict[str, Any], path: str, text: str) -> None:
    """Set a value as `pulumi config set --path` does, for paths like `a.b`, `a[0]`, `a["b.c"]`."""
    value: Any = int(text) if _WHOLE_NUMBER.fullmatch(text) else text
    value = text == "true" if text in ("true", "false") else value
    place: Any = settings
    steps = [*_STEP.finditer(path)]
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        inner: Any = value if following is None else [] if following["index"] else {}
        if step["index"]:
            index = int(step["index"])
            assert index <= len(place), f"{path}: the list has no item number {index - 1} yet"
            if index == len(place):
                place.append(inner)
            place = place[index]
        else:
            name = step["quoted"] or step["name"]
            place[name] = inner if following is None else place.get(name, inner)
            place = place[name]


def _by_file(text: str) -> dict[str, Any]:
    """Return the settings of a text that is a part of a stack's file; none if it is not."""
    if not re.match(r"(config:\n +)?disttrain:\w+:", text):
        return {}
    content = cast(dict[str, Any], yaml.safe_load(text))
    return own_values(cast(dict[str, Any], content.get("config", content)))
