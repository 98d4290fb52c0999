"""The pages about clusters, storages and images name every kind of them that there is, and give the
real versions, places and outputs.
"""

import re
from collections.abc import Iterator

import pytest

import infra.networks
from infra.controllers import CONTROLLERS
from infra.kinds import KINDS
from infra.networks.profile import NetworkProfile
from infra.registry import Registry
from infra.settings import PROJECT_ROOT
from tests.unit.stacks import outputs_of

DOCS = PROJECT_ROOT / "docs"
CLUSTERS = (DOCS / "clusters.md").read_text()
WORDS = {7: "seven", 11: "eleven", 17: "seventeen"}
OUTPUT = re.compile(r"(?:pulumi stack output |\boutputs? `)([a-zA-Z]+)")
BY_NAME = [name for name, kind in CONTROLLERS.items() if not kind.chosen_by]


def first_column(page: str, head: str) -> list[str]:
    """Return the names in the first column of the table whose head begins with these words."""
    text = (DOCS / page).read_text()
    table = text.partition(f"\n| {head} |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)


def columns() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each controller in the tables of `docs/clusters.md`, whose columns are controllers,
    with its cells by the words in the first column.
    """
    for table in re.findall(r"(?:^\|.*\|\n)+", CLUSTERS, re.MULTILINE):
        rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()]
        names = [cell.strip("`") for cell in rows[0][1:]]
        if set(names) <= set(BY_NAME) and any(row[0] == "version" for row in rows):
            for place, name in enumerate(names, 1):
                yield name, {row[0]: row[place] for row in rows[2:]}


@pytest.mark.parametrize(
    ("page", "head", "kinds"),
    [
        ("clusters.md", "`topology` | what is made | choose it when", KINDS.workloads),
        ("storage.md", "`storage` | use it when", KINDS.storages),
        ("clusters.md", "`network` | the ranks use", KINDS.networks),
    ],
)
def test_table_of_kinds_names_all_of_them(page: str, head: str, kinds: dict[str, object]) -> None:
    assert sorted(first_column(page, head)) == sorted(kinds)


def test_profile_that_the_page_shows_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of a network profile on the page about kinds of one's own runs as a module, and
    its option reaches the pods.
    """
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "extending.md").read_text(), re.DOTALL)
    networks: Registry[NetworkProfile] = Registry("network", [])
    monkeypatch.setattr(infra.networks, "NETWORKS", networks)
    exec(code, {"__name__": "my_kinds"})
    (profile,) = networks.values()
    made = profile.with_options(profile.options(devices=2))
    assert made.resources == {"example.com/fabric": "2"}


@pytest.mark.parametrize("name", KINDS.deliveries)
def test_each_delivery_is_on_the_page_of_the_image(name: str) -> None:
    assert f"`{name}`" in (DOCS / "image.md").read_text()


def test_pages_name_each_kind_that_no_queue_takes() -> None:
    """Each topology that cannot be in a queue is named as such in all three places: in
    the description of the setting `queue`, and twice on the page about queues.
    """
    never = {name for name, kind in KINDS.workloads.items() if not kind.queued}
    page, settings = ((DOCS / name).read_text() for name in ("queues.md", "settings.md"))
    (described,) = re.findall(r"^\| `queue` \|.*", settings, re.MULTILINE)
    places = [described, *re.findall(r"or any other but (.*)", page)]
    places += re.findall(r"^(`.*) are refused", page, re.MULTILINE)
    assert len(places) == 3
    for place in places:
        assert never <= set(re.findall(r"[a-z-]+", place)), place


def test_page_says_version_and_place_of_controllers() -> None:
    """`docs/clusters.md` gives the real version and namespace of each controller that is chosen by
    its name, and the number of its files if it is installed from several.
    """
    shown = dict(columns())
    assert sorted(shown) == sorted(BY_NAME)
    for name, cells in shown.items():
        kind = CONTROLLERS[name]
        assert cells["version"] == kind.version, name
        assert cells["namespace"] == f"`{kind.namespace}`", name
        if len(kind.files) > 1:
            (files,) = (cell for row, cell in cells.items() if row.startswith("files at"))
            assert files.startswith(f"{WORDS[len(kind.files)]} below"), name


def test_outputs_that_pages_name_exist() -> None:
    """Every output that a page names is an output of the stack `dev`, whether it is in a command
    `pulumi stack output NAME` or is called the output `NAME`.
    """
    pages = [*DOCS.rglob("*.md"), PROJECT_ROOT / "README.md"]
    named = {name for page in pages for name in OUTPUT.findall(page.read_text())}
    assert len(named) > 5
    assert sorted(named - set(outputs_of("dev"))) == []
