"""`runs`, `fetch`, `sample`, `push` and `verify` refuse what cannot be done before a pod starts."""

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from cli.__main__ import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("runs", "delete", "../other"), "'../other' cannot be used"),
        (("runs", "delete", "a/b"), "and no path"),
        (("runs", "delete", ".."), "'..' cannot be used"),
        (("runs", "delete", ".push-demo"), "'.push-demo' cannot be used"),
        (("runs", "delete", "demo", "demo"), "NAME: 'demo' is given twice: name each run once"),
        (("runs", "compare", "demo"), "one run ('demo') cannot be compared"),
        (("runs", "compare", "a", "b", "--to", "a.png"), "Use a name that ends in .svg"),
        (("runs", "--json", "compare", "a", "b"), "--json: it cannot be used with compare"),
        (("runs", "--json", "delete", "a"), "--json: it cannot be used with delete"),
        (("fetch", "--checkpoint", "newest"), "'newest' cannot be used: it is no checkpoint"),
        (("fetch", "--streams", "0"), "--streams: 0 cannot be used"),
        (("fetch", "a/b"), "RUN: 'a/b' cannot be used"),
        (("sample", "a/b"), "RUN: 'a/b' cannot be used"),
        (("push", "/nowhere/demo"), "there is no such folder"),
        (("verify", "--nodes", "--restart"), "which checks no run. Leave one of the two out"),
    ],
)
def test_option_that_cannot_be_is_named_with_its_value(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name or an option that cannot be used is refused with its value and the reason."""
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "place", "said"),
    [
        (
            ("fetch", "--to", "here"),
            "cli.fetch.command.bring",
            "error: --to here: it cannot be written: Disk quota exceeded (/home/me/x). Name a",
        ),
        (
            ("push", "here"),
            "cli.push.command.read_run",
            "error: FOLDER: here cannot be read: Disk quota exceeded (/home/me/x). All files of",
        ),
    ],
)
def test_what_this_machine_refuses_is_said_in_words(
    words: tuple[str, ...],
    place: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If this machine cannot read or write a file, the error names the option, the reason and the
    file, without the number of the error.
    """

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), Path("/home/me/x"))

    monkeypatch.setattr(place, refuse)
    assert main(words) == 2
    assert capsys.readouterr().err.startswith(said)
