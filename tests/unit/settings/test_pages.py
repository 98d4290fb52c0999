"""The settings that the pages show can be copied into a user's stack.

`docs/learn` is left out: its commands are run as they are, on the sandbox.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.controllers import CONTROLLERS
from infra.kinds import KINDS
from infra.settings import PROJECT_ROOT, parse_settings
from infra.settings.devices import Devices
from infra.settings.platform_for_runs import PlatformForRuns
from infra.settings.project import as_text, declared_defaults
from tests.unit.certificates import AUTHORITY
from tests.unit.settings.page_blocks import Block, blocks_of
from tests.unit.settings.reading import SSH
from tests.unit.stacks import PROJECT_FILE, files_of_this_machine

PAGES = (*sorted((PROJECT_ROOT / "docs").glob("*.md")), PROJECT_ROOT / "README.md")
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
FEWEST_BLOCKS = 30  # fewer would mean that they are no longer found
EXISTING = {"cluster": "existing"}
REGISTRY = {"imageDelivery": "registry", "imageRepository": "registry.example.org/team/trainer"}
SERVED_FOLDER = SSH | {"storage": "nfs-first-node", "gpus": 4}
SECOND_MACHINE = {"name": "gpu2", "address": "10.1.2.4", "host_key": "ssh-ed25519 AAAA..."}
# The settings that, as the page says, the stack has already, by the page and the headline.
BEFORE: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("clusters.md", "Controllers that the platform installs"): {"controllers": ["mpi-operator"]},
    ("clusters.md", "Amazon EKS"): EXISTING | REGISTRY,
    ("clusters.md", "Google GKE"): EXISTING | REGISTRY,
    ("clusters.md", "A cluster of your own machines"): EXISTING | REGISTRY,
    ("clusters.md", "A user of the namespace's own"): EXISTING,
    ("image.md", "By the machines' own network"): SERVED_FOLDER | {"nodes": [SECOND_MACHINE]},
    ("monitoring.md", "Metrics that outlive the pod"): {"monitoring": "install"},
    ("node.md", "Further machines"): SERVED_FOLDER,
    ("node.md", "Several servers"): SERVED_FOLDER,
    ("programs.md", "Steps from a file"): {"program": {"command": ["python", "train.py"]}},
    ("queues.md", "All pods of a run in one rack"): {"queues": {"name": "gpus"}},
    ("storage.md", "Claims on a cluster that others run"): EXISTING,
}
# A page can only show the form of these: a bundle and a module are made by the user first.
MADE_BY_THE_USER = ("bundle", "bundleSha256", "extensions")
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDwgO0kHTRfoXSnRcFGwXuKcJYJxrYqJfVbJr0g0ZrCf"
PLACEHOLDERS = r"ssh-ed25519 AAAA\.\.\.|\$\(ssh-keyscan [^)]*\)"


def on_this_machine(block: Block, scratch: Path) -> dict[str, Any]:
    """Return the settings of the block together with those that its page presupposes, with keys and
    files that exist here in place of the page's.
    """
    before = BEFORE.get((block.page, block.headline), {})
    text = re.sub(PLACEHOLDERS, HOST_KEY, json.dumps({**before, **block.settings}))
    made: dict[str, Any] = json.loads(text)
    for key, value in before.items():
        if isinstance(value, dict):
            made[key] = {**value, **made[key]}
    for key in MADE_BY_THE_USER:
        made.pop(key, None)
    if made.get("cluster") == "existing":
        made["kubeconfig"] = files_of_this_machine("sandbox", scratch)["kubeconfig"]
    if "caBundle" in made:
        authority = scratch / "ca.crt"
        authority.write_text(AUTHORITY)
        made["caBundle"] = str(authority)
    for name in made.get("controllerManifests", {}):
        made["controllerManifests"][name] = str(scratch)
        for file in CONTROLLERS[name].files:
            (scratch / file).touch()
    return made


@pytest.mark.parametrize("block", BLOCKS, ids=[f"{block.page}-{block.number}" for block in BLOCKS])
def test_settings_that_pages_show_are_accepted(block: Block, tmp_path: Path) -> None:
    """Each block of settings on a page is accepted, with what the page says that the stack has
    before.
    """
    settings = on_this_machine(block, tmp_path)
    raw = {**declared_defaults(), **{key: as_text(value) for key, value in settings.items()}}
    platform = PlatformForRuns(Devices("gpu", 24)) if raw["platform"] else None
    parse_settings(raw, block.secret_keys, "docs", KINDS, platform)


def test_blocks_with_settings_are_found() -> None:
    """These tests find the blocks of all pages, and each entry of `BEFORE` belongs to one."""
    assert len(BLOCKS) >= FEWEST_BLOCKS
    assert set(BEFORE) <= {(block.page, block.headline) for block in BLOCKS}


def test_a_block_is_read_as_pulumi_reads_it(tmp_path: Path) -> None:
    """The stand-in for `pulumi config set` in these tests reads fenced and indented blocks,
    commands and parts of a file.
    """
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n\n```\npulumi config set pods 2 && pulumi config set gpus 16   # all\n```\n\n"
        "## Two\n\n"
        "    pulumi config set --path 'queues.topology[0]' rack\n"
        "    pulumi config set --path 'queues.topology[1]' host\n"
        "    pulumi config set --path 'nodeSelector[\"a.b/c\"]' d\n"
        "    pulumi config set --path run.train.max_steps 5\n"
        "    pulumi config set --secret sudoPassword\n\n"
        "```yaml\nconfig:\n  disttrain:pods: 3\n```\n"
    )
    first, second, third = blocks_of(page)
    assert (first.headline, first.settings) == ("One", {"pods": "2", "gpus": "16"})
    assert (second.headline, second.number) == ("Two", 2)
    assert second.secret_keys == {"sudoPassword"}
    assert second.settings == {
        "queues": {"topology": ["rack", "host"]},
        "nodeSelector": {"a.b/c": "d"},
        "run": {"train": {"max_steps": 5}},
        "sudoPassword": "what the user types",
    }
    assert third.settings == {"pods": 3}


SPAN = re.compile(r"`([a-zA-Z0-9]+):? ([^\s`]+)`")
# The reasons for which a value itself is refused; other reasons are about other settings.
NO_VALUE = re.compile(r"has no such choice|it is not a|it is neither|it is too (small|large)")
TYPES = {key: entry["type"] for key, entry in PROJECT_FILE["config"].items()}


def spans() -> set[tuple[str, str]]:
    """Return each `key: value` and `key value` in the texts of all pages. A value in capitals
    stands for something else and is left out.
    """
    pages = [*(PROJECT_ROOT / "docs").rglob("*.md"), PROJECT_ROOT / "README.md"]
    found = {span for page in pages for span in SPAN.findall(page.read_text())}
    return {
        (key, value)
        for key, value in found
        if TYPES.get(key) in ("string", "integer", "boolean") and not value.isupper()
    }


def test_values_that_texts_name_are_possible() -> None:
    """Each value of a setting that a text names is possible, such as `lostNodes: replace` in the
    sentence that recommends it.
    """
    wrong = dict[tuple[str, str], str]()
    for key, value in spans():
        try:
            parse_settings({**declared_defaults(), key: value}, (), "docs", KINDS)
        except pulumi.RunError as refused:
            lines = [line for line in str(refused).splitlines() if line.startswith(f"  - {key}: ")]
            if any(map(NO_VALUE.search, lines)):
                wrong[key, value] = lines[0]
    assert wrong == {}
    assert len(spans()) > 50
