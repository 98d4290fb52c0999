"""What CopyToRemote of the command plugin copies, and where to; see test_command_provider.py."""

from pathlib import Path

import pytest

from tests.sandbox.command_lab import SshServer, Stack


@pytest.fixture
def tree(stack: Stack) -> Path:
    """Return a folder with a program, and with a file in a folder below."""
    tree = stack.folder / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "a.sh").write_text("echo a\n")
    (tree / "a.sh").chmod(0o755)
    (tree / "deep/b").write_text("b\n")
    return tree


PROGRAM = """
    for name, source, path in (
        ("file", pulumi.FileAsset("tree/a.sh"), "new/dir/a.sh"),
        ("file-into", pulumi.FileAsset("tree/a.sh"), "exists"),
        ("text", pulumi.StringAsset("a text"), "text"),
        ("tree-into", pulumi.FileArchive("tree"), "exists"),
        ("tree-new", pulumi.FileArchive("tree"), "new-tree"),
        ("content", pulumi.FileArchive("tree/"), "new-content"),
    ):
        remote.CopyToRemote(name, connection=remote.ConnectionArgs(**HERE), source=source,
                            remote_path=f"{THERE}/{path}")
"""


def test_files_texts_and_directories_are_copied(stack: Stack, ssh: SshServer, tree: Path) -> None:
    """Files, texts and directories are copied. A directory goes below the remote path under its own
    name, even if that path is new.

    Written with a final slash, only its content goes. What is copied stays at `destroy`.
    """
    there = stack.folder / "there"
    (there / "exists").mkdir(parents=True)
    stack.up(PROGRAM, HERE=ssh.connection(), THERE=str(there))
    files = {str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()}
    below = ("tree/a.sh", "tree/deep/b")
    assert files == {
        "new/dir/a.sh",
        "exists/a.sh",
        "text",
        *(f"exists/{name}" for name in below),
        *(f"new-tree/{name}" for name in below),
        "new-content/a.sh",
        "new-content/deep/b",
    }
    assert (there / "text").read_text() == "a text"
    stack.destroy()
    assert (there / "text").exists()


def test_modes_are_not_copied(stack: Stack, ssh: SshServer, tree: Path) -> None:
    """The mode of a file is not copied. A program must be made executable on the host."""
    there = stack.folder / "there"
    (there / "exists").mkdir(parents=True)
    stack.up(PROGRAM, HERE=ssh.connection(), THERE=str(there))
    assert (tree / "a.sh").stat().st_mode & 0o111
    assert not (there / "new/dir/a.sh").stat().st_mode & 0o111


def test_only_what_changes_is_copied_again(stack: Stack, ssh: SshServer, tree: Path) -> None:
    """A file is copied again only if it differs from what the state knows. A change on the host, or
    of the connection, is no reason to copy.
    """
    there = stack.folder / "there"
    (there / "exists").mkdir(parents=True)
    stack.up(PROGRAM, HERE=ssh.connection(), THERE=str(there))
    (there / "text").write_text("changed there")
    (tree / "deep/b").write_text("other\n")
    stack.up(PROGRAM, HERE=ssh.connection(dial_error_limit=3), THERE=str(there))
    assert (there / "exists/tree/deep/b").read_text() == "other\n"
    assert (there / "text").read_text() == "changed there"


def test_what_cannot_be_copied_is_refused(stack: Stack, ssh: SshServer) -> None:
    """An archive that is no file and no folder is refused in the preview."""
    stack.program(
        """
        asset = pulumi.AssetArchive({"a": pulumi.StringAsset("a")})
        remote.CopyToRemote("c", connection=remote.ConnectionArgs(**HERE), source=asset,
                            remote_path="/nowhere")
        """,
        HERE=ssh.connection(),
    )
    assert "archive must be a path to a file or directory" in stack.run("preview", fails=True)


def test_text_does_not_go_into_a_directory(stack: Stack, ssh: SshServer) -> None:
    """A text whose remote path is a directory is refused."""
    output = stack.up(
        """
        remote.CopyToRemote("c", connection=remote.ConnectionArgs(**HERE), remote_path=THERE,
                            source=pulumi.StringAsset("a"))
        """,
        fails=True,
        HERE=ssh.connection(),
        THERE=str(stack.folder),
    )
    assert f"remote path {stack.folder} is a directory" in output


def test_preview_refuses_a_source_that_is_not_known_yet(stack: Stack, ssh: SshServer) -> None:
    stack.program(
        """
        made = local.Command("made", create="echo a")
        remote.CopyToRemote("c", connection=remote.ConnectionArgs(**HERE), remote_path="/nowhere",
                            source=made.stdout.apply(pulumi.StringAsset))
        """,
        HERE=ssh.connection(),
    )
    assert "either asset or archive must be set" in stack.run("preview", fails=True)
