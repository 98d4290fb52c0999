"""The script of a machine's trust store, run for real on folders of each family."""

from pathlib import Path

import pytest

from tests.unit.run_script import run

STORES = {
    "debian": ("usr/local/share/ca-certificates", "update-ca-certificates"),
    "rhel": ("etc/pki/ca-trust/source/anchors", "update-ca-trust"),
    "suse": ("etc/pki/trust/anchors", "update-ca-certificates"),
}
BUNDLE = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----"


class Store:
    """A machine's trust store, of one family."""

    def __init__(self, family: str, root: Path) -> None:
        folder, update = STORES[family]
        self._root = root
        self.folder = root / "root" / folder
        tools = root / "bin"
        for each in (self.folder, tools, root / "root/run"):
            each.mkdir(parents=True)
        tool = tools / update
        tool.write_text(f"#!/bin/sh\necho x >>{root}/updates\n")
        tool.chmod(0o755)

    def act(self, action: str, bundle: str = BUNDLE, **more: str) -> str:
        place = {"STORE_ROOT": str(self._root / "root"), "BIN": str(self._root / "bin")}
        done = run("ca-certificates.sh", action, CA_BUNDLE=bundle, **place, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def updates(self) -> int:
        """How often the store was brought up to date."""
        return len((self._root / "updates").read_text().splitlines())


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("family", STORES)
def test_authorities_are_added_once_and_taken_out_again(
    family: str, end: str, tmp_path: Path
) -> None:
    """Fault 25 of the review: with a newline at its end a PEM was written at each `up`."""
    store = Store(family, tmp_path)
    for action, updates in (("create", 1), ("create", 1), ("delete", 2), ("delete", 2)):
        store.act(action, BUNDLE + end)
        assert store.updates() == updates
        found = [file.read_text() for file in store.folder.iterdir()]
        assert found == ([BUNDLE + "\n"] if action == "create" else [])


@pytest.mark.parametrize("former", ["gpu2", ""])
def test_machine_that_has_another_name_keeps_its_authorities(tmp_path: Path, former: str) -> None:
    """The engine may delete what it had under the former name when it has them under the new one.

    So it is where two machines swap their names. Without a name it was the first machine.
    """
    store = Store("debian", tmp_path)
    before = {"NODE": former} if former else {}
    store.act("create", **before)
    store.act("create", NODE="gpu3")
    words = "this host is the node gpu3 by now"
    assert words in store.act("delete", **before)
    assert (store.folder / "disttrain.crt").exists()
    assert store.updates() == 1
    store.act("delete", NODE="gpu3")
    files = [path for path in (tmp_path / "root").rglob("*") if path.is_file()]
    assert [file.name for file in files] == ["disttrain-trust.lock"]
