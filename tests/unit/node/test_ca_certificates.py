"""The script for a machine's trust store, run for real on folders like those of each family of
Linux. The command that updates the store is a stand-in.
"""

import signal
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
        self._tool = tools / update
        self.is_back()

    def is_cut_off_at_update(self) -> None:
        """From now on, the script is killed when it updates the store, until `is_back`."""
        self._tool.write_text("#!/bin/sh\nkill -KILL $PPID\n")

    def is_back(self) -> None:
        """From now on, the store can be updated."""
        self._tool.write_text(f"#!/bin/sh\necho x >>{self._root}/updates\n")
        self._tool.chmod(0o755)

    def act(self, action: str, bundle: str = BUNDLE, **more: str) -> str:
        """Run the script, which must end well or be killed by `is_cut_off_at_update`; return its
        output.
        """
        place = {"STORE_ROOT": str(self._root / "root"), "BIN": str(self._root / "bin")}
        done = run("ca-certificates.sh", action, CA_BUNDLE=bundle, **place, **more)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.stdout

    def updates(self) -> int:
        """Return how often the store was updated."""
        return len((self._root / "updates").read_text().splitlines())

    def left(self) -> list[str]:
        """Return the names of all files on the machine."""
        return [path.name for path in (self._root / "root").rglob("*") if path.is_file()]


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("family", STORES)
def test_authorities_are_added_once_and_taken_out_again(
    family: str, end: str, tmp_path: Path
) -> None:
    """Authorities are written once and removed once, and a second run changes nothing. A newline at
    the end of the PEM makes no difference; otherwise each `pulumi up` would write the file again.
    """
    store = Store(family, tmp_path)
    for action, updates in (("create", 1), ("create", 1), ("delete", 2), ("delete", 2)):
        store.act(action, BUNDLE + end)
        assert store.updates() == updates
        found = [file.read_text() for file in store.folder.iterdir()]
        assert found == ([BUNDLE + "\n"] if action == "create" else [])


def test_authorities_of_a_whole_company_are_added(tmp_path: Path) -> None:
    """A bundle of more than 128 KiB, as Debian's own is, can be added. As an argument or variable
    of a program it would fail with "Argument list too long".
    """
    store, bundle = Store("debian", tmp_path), "\n".join([BUNDLE] * 4000)
    assert len(bundle) > 200_000
    store.act("create", bundle)
    assert (store.folder / "disttrain.crt").read_text() == bundle + "\n"


@pytest.mark.parametrize("former", ["gpu2", ""])
def test_machine_that_has_another_name_keeps_its_authorities(tmp_path: Path, former: str) -> None:
    """Authorities stay if they are deleted under a name that the machine no longer has. When two
    machines swap names, the engine may delete what was under the former name last. No name stands
    for the first machine.
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
    assert store.left() == ["disttrain-trust.lock"]


def test_record_that_was_cut_off_is_removed(tmp_path: Path) -> None:
    """`delete` also removes what a `create` has left that was killed while it recorded for whom the
    authorities are, before it had added them.
    """
    store = Store("debian", tmp_path)
    record = tmp_path / "root/var/lib/disttrain-trust.new"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text("owner owner-a\n")
    store.act("delete", OWNER="owner-a")
    assert store.left() == ["disttrain-trust.lock"]


@pytest.mark.parametrize("node", ["gpu2", ""])
def test_update_that_was_cut_off_is_finished(tmp_path: Path, node: str) -> None:
    """The next run updates the store if the run before was killed there. Otherwise the next `pulumi
    up` would take the file for trusted, and after a `pulumi destroy` the authorities would still be
    trusted.
    """
    store, machine = Store("debian", tmp_path), {"NODE": node} if node else {}
    for updates, action in enumerate(("create", "delete"), start=1):
        store.is_cut_off_at_update()
        store.act(action, **machine)
        store.is_back()
        store.act(action, **machine)
        assert store.updates() == updates
    assert store.left() == ["disttrain-trust.lock"]


ANN = {"OWNER": "owner-a", "STACK": "ann"}
BOB = {"OWNER": "owner-b", "STACK": "bob"}


def test_authorities_of_another_stack_stay(tmp_path: Path) -> None:
    """A second stack on the machine cannot replace the authorities of the first one, and its
    `pulumi destroy` does not remove them. It may use the same ones.
    """
    store, others = Store("debian", tmp_path), BUNDLE.replace("MA==", "MQ==")
    store.act("create", **ANN)
    with pytest.raises(AssertionError, match=r"caBundle: this host .* another stack \(ann\)"):
        store.act("create", others, **BOB)
    assert "goes with another stack (ann)" in store.act("create", **BOB)
    assert "belongs to another stack (ann)" in store.act("delete", **BOB)
    assert (store.folder / "disttrain.crt").read_text() == BUNDLE + "\n"
    assert store.updates() == 1
    store.act("delete", **ANN)
    assert store.left() == ["disttrain-trust.lock"]
    store.act("create", others, **BOB)


def test_authorities_of_an_older_version_are_ours(tmp_path: Path) -> None:
    """Authorities that an older version has added, without the name of a stack, go to the stack
    that sets them next. The store is not updated for that.
    """
    store = Store("debian", tmp_path)
    store.act("create")
    noted = tmp_path / "root/var/lib/disttrain-trust"
    noted.parent.mkdir(exist_ok=True)
    noted.write_text("gpu2\n")
    assert "this host is the node gpu2 by now" in store.act("delete", **ANN)
    store.act("create", NODE="gpu2", **ANN)
    assert store.updates() == 1
    assert "belongs to another stack (ann)" in store.act("delete", NODE="gpu2", **BOB)
    store.act("delete", NODE="gpu2", **ANN)
    assert store.left() == ["disttrain-trust.lock"]
