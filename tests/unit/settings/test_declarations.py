"""Pulumi.yaml, the settings' code and docs/settings.md list the same keys in the same sections."""

import ast
from pathlib import Path

import pytest

from infra.kinds import KINDS
from infra.settings import read_settings
from infra.settings.auto import with_choices_made
from infra.settings.document import DECLARATIONS, PAGE, Section, document, main, sections
from infra.settings.reader import Reader
from tests.unit.stacks import PROJECT, PROJECT_FILE, raw_settings

TYPES = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}
SECTIONS = sections(DECLARATIONS.read_text())


def literals(file: Path) -> set[object]:
    """Return every constant in a Python file, among them all texts in quotation marks."""
    tree = ast.parse(file.read_text())
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}


def test_keys_declared_are_the_keys_read() -> None:
    """The program reads exactly the keys that Pulumi.yaml declares."""
    reader = Reader(with_choices_made(raw_settings("dev")))
    read_settings(reader, "dev", KINDS)
    assert reader.problems == []
    assert set(reader.keys) == set(PROJECT_FILE["config"])


@pytest.mark.parametrize("section", SECTIONS, ids=[section.file for section in SECTIONS])
def test_a_section_names_the_file_that_reads_it(section: Section) -> None:
    """Each key of a section in Pulumi.yaml is in the file that the section names, or in a file
    beside it such as gpu_chart.py beside gpu.py.
    """
    folder = PROJECT / "infra" / "settings"
    stem = section.file.removesuffix(".py")
    files = [folder / section.file, *folder.glob(f"{stem}_*.py")]
    in_quotes = set[object]().union(*map(literals, files))
    assert [key for key in section.keys if key not in in_quotes] == []


def test_every_key_stands_in_one_section() -> None:
    """Each key is in exactly one section, and each section names another file."""
    keys = [key for section in SECTIONS for key in section.keys]
    assert keys == list(PROJECT_FILE["config"])
    files = [section.file for section in SECTIONS]
    assert len(files) == len(set(files))


def test_page_of_the_settings_is_the_generated_one() -> None:
    """`docs/settings.md` is what `make docs` would write."""
    assert PAGE.read_text() == document(DECLARATIONS.read_text())


def test_page_is_written_with_signs_of_markdown_escaped(tmp_path: Path) -> None:
    """Descriptions are written with links to other pages, and their signs do not count as
    Markdown.
    """
    page = tmp_path / "settings.md"
    main(page)
    assert page.read_text() == PAGE.read_text()
    config = '\nconfig:\n  # --- One (one.py) ---\n  a:\n    type: string\n    default: ""\n'
    text = document(f"{config}    description: a <tag> or | a bar, see docs/data.md\n")
    assert "## One\n\nRules: `infra/settings/one.py`." in text
    cell = "a \\<tag> or \\| a bar, see [data.md](data.md)"
    assert f"| `a` | string |  | {cell} |\n" in text


def test_a_key_without_a_section_is_refused() -> None:
    """A key without a section above it is an error when the page is made."""
    with pytest.raises(ValueError, match="no headline stands above the key a"):
        sections("\nconfig:\n  a:\n    type: string\n")


def test_every_key_has_type_default_and_description() -> None:
    """Each key has a type, a default of that type and a description."""
    for key, declaration in PROJECT_FILE["config"].items():
        assert set(declaration) - {"items"} == {"type", "default", "description"}, key
        assert type(declaration["default"]) is TYPES[declaration["type"]], key
