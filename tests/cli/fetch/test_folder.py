"""`fetch` leaves files in its target folder alone that it has not written itself."""

from contextlib import suppress
from pathlib import Path

import pytest

from cli.fetch.folder import RECORD, Folder
from cli.fetch.order import Order
from infra.kube.errors import TaskError
from tests.cli.fetch.local_pod import LocalPod, contents, fetch, make_run


def test_file_of_somebody_else_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fetch` refuses a folder where a file of the user has the name of one of the run's files."""
    run = make_run(tmp_path / "demo")
    here = tmp_path / "here"
    here.mkdir()
    (here / "metrics.jsonl").write_text("mine\n")
    with pytest.raises(ValueError, match=r"metrics.jsonl with other contents.*by --to"):
        fetch(monkeypatch, LocalPod(), run, here)
    assert contents(here) == {"metrics.jsonl": b"mine\n"}


def test_fetched_file_that_was_edited_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second `fetch` does not overwrite a fetched file that the user has edited."""
    run = make_run(tmp_path / "demo")
    here = tmp_path / "here"
    fetch(monkeypatch, LocalPod(), run, here)
    (here / "run.yaml").write_text("edited: true\n")
    with pytest.raises(ValueError, match=r"run.yaml with other contents"):
        fetch(monkeypatch, LocalPod(), run, here)
    assert (here / "run.yaml").read_text() == "edited: true\n"


def test_fetches_that_broke_off_leave_no_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fetch` knows a file as its own after any number of fetches that broke off before a newer
    one was there. The metrics of a run that trains are new at each fetch, and the user would be
    told that `fetch` did not write them.
    """
    run, here = make_run(tmp_path / "demo"), tmp_path / "here"
    fetch(monkeypatch, LocalPod(), run, here)

    def break_off(words: list[str]) -> None:
        if words[0] == "send":
            raise TaskError("the connection was cut again and again")

    for step in (100, 101, 102):
        with (run / "metrics.jsonl").open("a") as metrics:
            metrics.write(f'{{"step": {step}}}\n')
        with pytest.raises(TaskError, match="again and again"):
            fetch(monkeypatch, LocalPod(before=break_off), run, here)
    fetch(monkeypatch, LocalPod(), run, here)
    assert contents(here) == contents(run)


def test_same_contents_and_other_names_do_not_disturb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of the user with other names, or with the same contents as the run's, do not hinder a
    `fetch`.
    """
    run = make_run(tmp_path / "demo")
    here = tmp_path / "here"
    here.mkdir()
    (here / "notes.txt").write_text("mine")
    (here / "run.yaml").write_bytes((run / "run.yaml").read_bytes())
    fetch(monkeypatch, LocalPod(), run, here)
    assert contents(here) == {**contents(run), "notes.txt": b"mine"}


def test_link_is_never_followed_or_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "demo")
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "mine").write_text("mine")
    (here / "run.yaml").symlink_to(tmp_path / "mine")
    with pytest.raises(ValueError, match=r"run.yaml with other contents"):
        fetch(monkeypatch, LocalPod(), run, here)
    assert (tmp_path / "mine").read_text() == "mine"


def test_folder_of_another_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fetch` refuses a folder that holds another run, whose record is damaged, or that is no
    folder.
    """
    here = tmp_path / "here"
    fetch(monkeypatch, LocalPod(), make_run(tmp_path / "demo"), here)
    with pytest.raises(ValueError, match="it holds what was fetched of run 'demo', not of 'other'"):
        Folder(here, "other")
    (here / RECORD).write_text("{")
    with pytest.raises(ValueError, match="cannot be understood"):
        Folder(here, "demo")
    with pytest.raises(ValueError, match="it is no folder"):
        Folder(here / "run.yaml", "demo")


def test_second_fetch_into_one_folder_waits_not(tmp_path: Path) -> None:
    """A `fetch` into a folder into which another one is writing is refused at once."""
    with (
        Folder(tmp_path / "here", "demo").alone(),
        pytest.raises(ValueError, match="another fetch is writing into it now"),
        Folder(tmp_path / "here", "demo").alone(),
    ):
        pass


def test_full_disk_is_said_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fetch` refuses to begin if the disk has too little room."""
    run = make_run(tmp_path / "demo")
    usage = type("usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)  # pyright: ignore
    pod = LocalPod()
    with pytest.raises(ValueError, match="1,000 are free there"):
        fetch(monkeypatch, pod, run, tmp_path / "here")
    assert pod.sent_bytes == 0


def test_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--to=~/results` means the home folder. The shell does not replace the tilde there, and
    nobody wants a folder of that name.
    """
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Order(to="~/results").folder("demo").root == tmp_path / "results"
    assert Order(to="here").folder("demo").root == Path("here")
    assert Order().folder("demo").root == Path("runs/demo")


def test_fetch_of_nothing_leaves_no_empty_folder(tmp_path: Path) -> None:
    """A `fetch` that fails before it has copied anything leaves no new empty folder. A folder that
    was there keeps its files.
    """
    for content in (None, "mine"):
        root = tmp_path / "here"
        if content:
            root.mkdir()
            (root / "file").write_text(content)
        with suppress(ValueError), Folder(root, "demo").alone():
            raise ValueError("there is no such run")
        assert root.exists() == bool(content)


@pytest.mark.parametrize("was_there", [True, False])
def test_empty_folder_of_user_stays(was_there: bool, tmp_path: Path) -> None:
    """A `fetch` that copied nothing removes the empty folder that it made, but not one that the
    user made.
    """
    root = tmp_path / "mine"
    if was_there:
        root.mkdir()
    with Folder(root, "any").alone():
        assert root.is_dir()
    assert root.exists() is was_there
