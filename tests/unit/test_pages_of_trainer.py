"""The pages about the trainer have its real settings, defaults, metrics and kinds of time."""

import dataclasses
import re

from infra.settings import PROJECT_ROOT
from infra.settings.project import declared_defaults
from trainer.config import RunConfig, preset_names
from trainer.config.program import LAUNCH_OPTIONS
from trainer.events.show import WHAT
from trainer.metrics.log import StepMetrics

DOCS = PROJECT_ROOT / "docs"
PAGES = (*sorted(DOCS.rglob("*.md")), PROJECT_ROOT / "README.md")
# `run.train.timeout_seconds` (60), `dataset.val_share` (0.1)
WITH_DEFAULT = re.compile(r"`(?:run\.)?([a-z]+)\.([a-z_]+)` \((\d[\d.]*)\)")
# | `train.nodes_min` | 0 |
DEFAULT_CELL = re.compile(r"^\| `([a-z]+)\.([a-z_]+)` \| (\d[\d.]*) \|", re.MULTILINE)


def page(name: str) -> str:
    return (DOCS / name).read_text()


def first_cells(text: str, head: str) -> list[str]:
    """Return the first column of the table with that head, without its two lines of head."""
    table = text.partition(f"\n{head}\n")[2].partition("\n\n")[0]
    return [row.split(" | ")[0].strip("| ") for row in table.splitlines()[1:]]


def test_defaults_that_pages_give_are_the_settings() -> None:
    """Where a page gives a default beside the name of a trainer's setting, it is the real
    default.
    """
    config = RunConfig(run_name="dev")
    text = "\n".join(path.read_text() for path in PAGES)
    found = {*WITH_DEFAULT.findall(text), *DEFAULT_CELL.findall(text)}
    assert len(found) > 6
    for section, key, shown in found:
        assert float(shown) == getattr(getattr(config, section), key), f"{section}.{key}"


def test_page_explains_each_value_of_a_record() -> None:
    """`docs/trainer.md` explains each key of `metrics.jsonl` and no other one. Only `step` needs no
    explanation.
    """
    cells = first_cells(page("trainer.md"), "| key | meaning |")
    names = [name for cell in cells for name in cell.replace(" ", "").split(",")]
    full = [n.replace("..", "tokens_per_second") for n in names]
    full = [f"step_seconds{n}" if n.startswith("_") else n for n in full]
    assert sorted([*full, "step"]) == sorted(f.name for f in dataclasses.fields(StepMetrics))


def test_page_explains_each_kind_of_time() -> None:
    """The table in `docs/goodput.md` explains each kind of time, and the account that the page
    shows has the words that the program prints.
    """
    text = page("goodput.md")
    assert first_cells(text, "| kind | what it is |") == [kind.value for kind in WHAT]
    shown = re.findall(r"^(\w+) +\d+\.\d +\d+\.\d% +\d\.\d\d  (.+)$", text, re.MULTILINE)
    assert shown == [(kind.value, words) for kind, words in WHAT.items()]


def test_page_names_settings_that_programs_keep() -> None:
    """`docs/programs.md` names exactly those settings of the trainer that also count for a program
    of the user's own.
    """
    (kept,) = re.findall(r"all of `run` except (.*?)\. There is", page("programs.md"), re.DOTALL)
    names = [name.rpartition(".")[2] for name in re.findall(r"`([a-z_.]+)`", kept)]
    assert sorted(names) == sorted(LAUNCH_OPTIONS)


def test_page_has_a_row_for_each_preset() -> None:
    """`docs/data.md` has a row for each preset, and marks the one that is the default of the
    setting `preset`.
    """
    rows = first_cells(page("data.md"), "| preset | data | sizes and checksums |")
    assert sorted(re.findall(r"`([\w-]+)`", " ".join(rows))) == sorted(preset_names())
    (marked,) = [row for row in rows if row.endswith("(the default)")]
    assert marked == f"`{declared_defaults()['preset']}` (the default)"
