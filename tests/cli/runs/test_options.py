"""What cannot be asked for is said before a pod is started."""

import pytest

from cli.__main__ import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("runs", "delete", "../other"), "'../other' cannot be used"),
        (("runs", "delete", "a/b"), "and no path"),
        (("runs", "delete", ".."), "'..' cannot be used"),
        (("runs", "delete", ".push-demo"), "'.push-demo' cannot be used"),
        (("runs", "delete", "demo", "demo"), "a run is named twice"),
        (("runs", "compare", "demo"), "one run ('demo') cannot be compared"),
        (("runs", "compare", "a", "b", "--to", "a.png"), "Use a name that ends in .svg"),
        (("fetch", "--checkpoint", "newest"), "'newest' cannot be used: it is no checkpoint"),
        (("fetch", "--streams", "0"), "--streams: 0 cannot be used"),
        (("fetch", "a/b"), "RUN: 'a/b' cannot be used"),
        (("sample", "a/b"), "RUN: 'a/b' cannot be used"),
        (("push", "/nowhere/demo"), "there is no such folder"),
    ],
)
def test_option_that_cannot_be_is_named_with_its_value(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err
