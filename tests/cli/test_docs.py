"""The README and the pages in docs/ agree with the programs that they describe."""

import contextlib
import io
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import yaml

import infra.airgap.__main__
import infra.image.__main__
import sandbox.__main__
import trainer.__main__
from cli.__main__ import COMMANDS, main, parser_of
from cli.completion import options_of
from cli.doctor.command import CHECKS
from cli.doctor.machines import CONNECTION
from cli.doctor.pair_checks import PAIR_CHECKS

PROJECT = Path(__file__).parents[2]
OPERATIONS = (PROJECT / "docs/operations.md").read_text()
SECURITY = (PROJECT / "docs/security.md").read_text()
PAGES = (*sorted((PROJECT / "docs").rglob("*.md")), *sorted(PROJECT.glob("*.md")))
# `./disttrain logs --tail 20`: the command, and the words up to the end of what is typed.
TYPED = re.compile(r"\./disttrain ([a-z]+)([^\n`|;#&()]*)")
# `make demo` in a text, or at the beginning of a line in a block.
TARGET = re.compile(r"(?:`|^)make ([a-z][a-z0-9-]*)", re.MULTILINE)
# `python3 -m sandbox up --nodes 3`: the module, its command, and the words up to the end.
MODULE = re.compile(r"(python3?) -m ([a-z.]+) ([a-z-]+)([^\n`|;#&()]*)")
MODULES: dict[str, Callable[[list[str]], int]] = {
    "infra.airgap": infra.airgap.__main__.main,
    "infra.image": infra.image.__main__.main,
    "sandbox": sandbox.__main__.main,
    "trainer": trainer.__main__.main,
}
LINK = re.compile(r"\]\((?!https?:)([\w./-]*)(?:#([\w-]+))?\)")
# In texts of the programs: `docs/node.md#the-first-machine-is-lost`.
REFERENCE = re.compile(r"(?<![\w/.])(docs/[\w/-]+\.md)(?:#([\w-]+))?")
# `run` in `pulumi config set --path 'run.train.seed'`; a word in capitals such as KEY is a place to
# fill in.
SETTING = re.compile(r"pulumi config set (?:--path |--secret )*['\"]?([A-Za-z0-9]+)")

# `infra/node/scripts/ca-*.sh` in docs/security.md.
ROOTS_SCRIPT = re.compile(r"`((?:infra|cli)/[\w/*.-]+)`")


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headlines: small letters, no signs, spaces
    as dashes.
    """
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headlines = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", headline) for headline in headlines)
    return {re.sub(r"[^\w -]", "", headline.lower()).replace(" ", "-") for headline in plain}


def test_operations_page_lists_exactly_the_checks_that_there_are() -> None:
    rows = dict(re.findall(r"^\| `([a-z0-9_-]+)` \| ([A-Z].*\.) \|$", OPERATIONS, re.MULTILINE))
    assert rows == {check.id: check.summary for check in (*CHECKS, *PAIR_CHECKS)}
    assert f"`{CONNECTION}`" in OPERATIONS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_that_a_page_tells_to_set_exist(page: Path) -> None:
    declared = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text())["config"]
    named = {name for name in SETTING.findall(page.read_text()) if not name.isupper()}
    assert sorted(named - set(declared)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """Each link to a page or file of the project leads to a file that exists, and to a headline
    that the page has.
    """
    for target, anchor in LINK.findall(page.read_text()):
        file = page.parent / target if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_a_page_types_exist(page: Path) -> None:
    """Each `./disttrain` command with its options, and each `make` target that a page shows,
    exists. What stands after ` -- ` belongs to another program and is not looked at.
    """
    known = options_of(parser_of(COMMANDS))
    text = page.read_text()
    for name, rest in TYPED.findall(text):
        options = re.findall(r"(?<!\S)--[a-z][a-z-]*", rest.partition(" -- ")[0])
        assert name in known, name
        assert sorted(set(options) - set(known[name])) == [], f"./disttrain {name}"
    targets = set(re.findall(r"^([a-z0-9-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    assert sorted(set(TARGET.findall(text)) - targets) == []


@cache
def help_of(module: str, command: str) -> str:
    """Return the subcommand's help, or an empty text if the module has no subcommand of that
    name.
    """
    said = io.StringIO()
    unheard = contextlib.redirect_stderr(io.StringIO())
    with contextlib.redirect_stdout(said), unheard, contextlib.suppress(SystemExit):
        MODULES[module]([command, "--help"])
    return said.getvalue()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_programs_that_a_page_starts_exist(page: Path) -> None:
    """Each `python3 -m` line of the project's own modules names a subcommand and options that
    exist. An option such as `--section.key` is a setting of the trainer, and is not looked at.
    """
    for python, module, command, rest in MODULE.findall(page.read_text()):
        if module not in MODULES:
            continue
        shown = help_of(module, command)
        assert shown, f"{module} {command}"
        for option in re.findall(r"(?<!\S)\[?(--[a-z][a-z-]*)(?![\w.])", rest.partition(" -- ")[0]):
            assert f"{option} " in shown or f"{option}]" in shown, f"{module} {command} {option}"
        # Debian and Ubuntu have no `python` outside of a virtual environment. Only the trainer
        # needs such an environment.
        assert module == "trainer" or python == "python3", f"{page.name}: {python} -m {module}"


def test_the_patterns_find_what_the_pages_have() -> None:
    """Each pattern finds many places in the pages. Otherwise the tests here could pass without
    looking at anything.
    """
    for pattern in (LINK, TYPED, TARGET, MODULE, SETTING):
        assert sum(len(pattern.findall(page.read_text())) for page in PAGES) > 30, pattern.pattern
    links = [link for page in PAGES for link in LINK.findall(page.read_text())]
    assert sum(1 for _, anchor in links if anchor) > 30
    assert len(ROOTS_SCRIPT.findall(SECURITY)) > 3


def test_readme_leads_to_every_page_of_docs() -> None:
    linked = {target for target, _ in LINK.findall((PROJECT / "README.md").read_text())}
    assert sorted(f"docs/{page.name}" for page in (PROJECT / "docs").glob("*.md")) == sorted(
        {target for target in linked if re.fullmatch(r"docs/[\w-]+\.md", target)}
    )


@pytest.mark.parametrize("folder", ["infra", "cli", "trainer", "docker"])
def test_pages_that_programs_name_have_that_headline(folder: str) -> None:
    """Each page of docs/ that a program's text names exists, and so does the headline that is named
    with it.
    """
    files = [
        file
        for file in (PROJECT / folder).rglob("*")
        if file.suffix in {".py", ".sh"} or file.name == "Dockerfile"
    ]
    named = [(file, *found) for file in files for found in REFERENCE.findall(file.read_text())]
    assert named
    for file, page, anchor in named:
        assert (PROJECT / page).is_file(), f"{file}: {page}"
        assert not anchor or anchor in anchors(PROJECT / page), f"{file}: {page}#{anchor}"


@pytest.mark.parametrize("page", ["operations.md", "security.md"])
def test_no_table_cell_is_too_long_to_read(page: str) -> None:
    """No cell of a table in these pages is longer than 220 characters."""
    rows = [line for line in (PROJECT / "docs" / page).read_text().splitlines() if line[:1] == "|"]
    assert rows
    long = [cell for row in rows for cell in row.split(" | ") if len(cell) > 220]
    assert long == []


def test_scripts_that_run_as_root_exist() -> None:
    """Each file of infra/ and cli/ that docs/security.md names as run by root exists. A script that
    was moved must be moved there too.
    """
    for pattern in ROOTS_SCRIPT.findall(SECURITY):
        assert list(PROJECT.glob(pattern)), pattern


def test_page_on_security_names_each_script_of_a_machine() -> None:
    """docs/security.md names each script that runs as root on a machine: who decides whether to let
    this program have root there reads that list.
    """
    named = {file for pattern in ROOTS_SCRIPT.findall(SECURITY) for file in PROJECT.glob(pattern)}
    there = {*(PROJECT / "infra/node/scripts").glob("*.sh"), *PROJECT.glob("cli/scripts/*.sh")}
    assert sorted(file.name for file in there - named) == []


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("operations.md", "completion bash"),
        ("monitoring.md", "monitoring rules"),
        ("monitoring.md", "monitoring dashboard"),
    ],
)
def test_output_shown_is_what_the_command_prints(
    page: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output that a page shows below a command is what the command prints. In the page, a line
    `[...]` stands for lines that are left out.
    """
    text = (PROJECT / "docs" / page).read_text()
    block = re.search(rf"^\$ \./disttrain {words}\n(.*?)^(?:```|\$ )", text, re.M | re.S)
    assert block
    pieces = [re.escape(piece) for piece in block[1].split("[...]\n")]
    assert main(words.split()) == 0
    assert re.fullmatch("(?:.*\n)*?".join(pieces), capsys.readouterr().out)
