"""Writes docs/settings.md from Pulumi.yaml: `python -m infra.settings.document` (`make docs`)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.settings.project import PROJECT_ROOT, as_text

PAGE = PROJECT_ROOT / "docs" / "settings.md"
DECLARATIONS = PROJECT_ROOT / "Pulumi.yaml"

_INTRODUCTION = """\
# Settings

<!-- Written by `make docs` from Pulumi.yaml: change the descriptions there. -->

Set a setting with `pulumi config set KEY VALUE`, one inside an object with
`pulumi config set --path 'run.train.max_steps' 2000`, and a secret with
`pulumi config set --secret KEY`. They are stored in the stack's file, `Pulumi.<stack>.yaml`. A
setting that is not in the file has its default. An empty default means "not set".

If you write into that file yourself, put a text that looks like a date or a number in quotation
marks: Pulumi makes 1.1 of 1.10, 7 of 007, and a time of the date 2026-11-28, which is refused.

For a first training you need only a few: those in [quickstart.md](quickstart.md). Each section
below names the file with its rules. "Node" and "machine" mean the same here.

Before the program starts, Pulumi's engine checks the types, one setting at a time. Then the program
checks everything else and shows all problems at once: the key, its value, why it cannot be used,
and what to do. While a setting is wrong, nothing is created, changed or deleted. A note names
settings that have no effect because of others, such as `noProxy` without a proxy.
"""
_SECTION = re.compile(r"^  # --- (?P<title>.+) \((?P<file>\w+\.py)\) ---$")
_KEY = re.compile(r"^  (?P<key>\w+):$")
_PAGE_NAME = re.compile(r"\bdocs/([\w-]+\.md)")


@dataclass(frozen=True)
class Section:
    """One section of Pulumi.yaml: its title, its file in infra/settings/, and its keys."""

    title: str
    file: str
    keys: tuple[str, ...]


def sections(declarations: str) -> list[Section]:
    """Return the sections of a Pulumi.yaml, in the order of the file.

    Args:
        declarations: the text of the file. A section begins with `# --- Title (file.py) ---`.

    Raises:
        ValueError: a key stands before the first headline.
    """
    found: list[Section] = []
    for line in declarations.partition("\nconfig:\n")[2].splitlines():
        if headline := _SECTION.match(line):
            found.append(Section(headline["title"], headline["file"], ()))
        elif key := _KEY.match(line):
            if not found:
                raise ValueError(f"Pulumi.yaml: no headline stands above the key {key['key']}")
            last = found.pop()
            found.append(Section(last.title, last.file, (*last.keys, key["key"])))
    return found


def document(declarations: str) -> str:
    """Return the page docs/settings.md for the text of a Pulumi.yaml.

    Raises:
        ValueError: see `sections`.
    """
    config: dict[str, Any] = yaml.safe_load(declarations)["config"]
    return _INTRODUCTION + "".join(
        line for section in sections(declarations) for line in _table(section, config)
    )


def _table(section: Section, config: dict[str, Any]) -> Iterator[str]:
    yield f"\n## {section.title}\n\nRules: `infra/settings/{section.file}`.\n\n"
    yield "| key | type | default | meaning |\n|---|---|---|---|\n"
    for key in section.keys:
        type_, default, meaning = (config[key][part] for part in ("type", "default", "description"))
        shown = f"`{as_text(default)}`" if default not in ("", {}, []) else ""
        yield f"| `{key}` | {type_} | {shown} | {_cell(meaning)} |\n"


def _cell(text: str) -> str:
    """Return the text for a cell of a Markdown table.

    The characters `<` and `|` are escaped, because Markdown would read them as a tag or as the end
    of the cell. The name of another page becomes a link to it.
    """
    return _PAGE_NAME.sub(r"[\1](\1)", text.replace("<", r"\<").replace("|", r"\|"))


def main(page: Path = PAGE) -> None:
    """Write the page."""
    page.write_text(document(DECLARATIONS.read_text()))


if __name__ == "__main__":
    main()
