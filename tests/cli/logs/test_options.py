"""`./disttrain logs` refuses options that cannot be used before it asks Pulumi or the cluster."""

import pytest

from cli.__main__ import main
from cli.logs.selection import no_such_ranks


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--since", "yesterday"), "--since: 'yesterday' cannot be used: it is no age and no time"),
        (("--first-error", "--rank", "3"), "--rank: '3' cannot be used with --first-error"),
        (("--first-error", "--grep", "loss"), "--grep: 'loss' cannot be used with --first-error"),
        (("--first-error", "--tail", "9"), "--tail: 9 cannot be used with --first-error"),
        (("--tail", "-5"), "--tail: -5 cannot be used: it is below 0"),
    ],
)
def test_option_that_would_be_ignored_is_refused(
    words: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An option that cannot be used, alone or with `--first-error`, is refused. Otherwise a user
    who asks for one rank would be shown the error of another one.
    """

    def nobody(_: str) -> None:
        raise AssertionError("somebody was asked")

    monkeypatch.setattr("cli.logs.command.run_place", nobody)
    assert main(["logs", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ({0, 1}, ""),
        ({1, 7}, "--rank: the run has no rank 7 now but 0 to 1: only lines of earlier"),
        ({2, 7}, "--rank: the run has no rank 2, 7 now but 0 to 1: only lines of earlier"),
        (set(range(2, 9)), "--rank: the run has no rank 2, 3, 4, 5, 6, and 2 more now but 0 to 1"),
    ],
)
def test_rank_that_the_run_has_not_is_said(ranks: set[int], said: str) -> None:
    """`--rank` says which of the ranks the run does not have now. An earlier start may have had
    more ranks, and their lines are shown.
    """
    text = no_such_ranks(frozenset(ranks), 2)
    assert text.startswith(said)
    assert bool(text) == bool(said)
