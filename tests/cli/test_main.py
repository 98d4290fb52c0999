"""What `./disttrain` does in every command alike: how errors are shown, the help, and the
output.
"""

import os
import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli import __main__ as program
from infra.kube.errors import ApiError, TaskError, UnreachableError
from sandbox.venvs import PROJECT


def run_with(error: Exception, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the exit status of a command that ends with this error."""

    def run(_: Namespace) -> int:
        raise error

    def add_arguments(_: ArgumentParser) -> None:
        """The command has no arguments."""

    module = SimpleNamespace(run=run, add_arguments=add_arguments)
    monkeypatch.setitem(sys.modules, "command_that_fails", module)
    command = program.Command("fails", "command_that_fails", "fail")
    monkeypatch.setattr(program, "COMMANDS", {"fail": command})
    return program.main(["fail"])


@pytest.mark.parametrize(
    "error",
    [ValueError("why"), ApiError(403, "why"), TaskError("why"), UnreachableError("why")],
    ids=lambda error: type(error).__name__,
)
def test_error_is_one_sentence_and_no_traceback(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_with(error, monkeypatch) == 2
    assert capsys.readouterr().err == "error: why\n"


@pytest.mark.parametrize("kind", [lambda said: ApiError(403, said), ValueError, TaskError])
def test_missing_right_comes_with_what_to_do(
    kind: Callable[[str], Exception],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The API server names the right that the user lacks. Whom to ask for it follows, whichever
    error the command makes of that, and the page that lists what each command needs has a section
    of the name that is given.
    """
    said = 'pods is forbidden: User "ann" cannot create resource "pods" in API group ""'
    assert run_with(kind(said), monkeypatch) == 2
    assert capsys.readouterr().err == f"error: {said}{program.HOW_TO_GET_A_RIGHT}\n"
    (title,) = re.findall('docs/operations.md, "(.*)"', program.HOW_TO_GET_A_RIGHT)
    assert f"\n## {title}\n" in (PROJECT / "docs/operations.md").read_text()


def test_refusal_for_another_reason_needs_no_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A quota gives the same status as a missing right, and no right helps against it."""
    said = 'pods "a" is forbidden: exceeded quota: team'
    assert run_with(ApiError(403, said), monkeypatch) == 2
    assert capsys.readouterr().err == f"error: {said}\n"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("logs", "dev"), ". A stack is named by --stack: ./disttrain logs --stack dev"),
        (("stop", "dev"), ". A stack is named by --stack: ./disttrain stop --stack dev"),
        (("logs", "--rnak", "3"), ""),
    ],
)
def test_name_of_a_stack_without_its_option_is_recognized(
    words: tuple[str, ...], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`status dev` shows one run, so `logs dev` is a likely mistake. The error names the option."""
    with pytest.raises(SystemExit, match=r"^2$"):
        program.main(words)
    unknown = " ".join(words[1:])
    assert f"unrecognized arguments: {unknown}{hint}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("monitoring", "the following arguments are required: {dashboard,rules}"),
        ("completion", "the following arguments are required: {bash,zsh,fish}"),
    ],
)
def test_missing_word_is_named_as_in_the_help(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error about a missing word names the words to choose from, and no name of the program's
    own, which the help does not show.
    """
    with pytest.raises(SystemExit, match=r"^2$"):
        program.main([words])
    assert said in capsys.readouterr().err


def test_reader_that_goes_away_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command whose output nobody reads any more ends silently with 141, the status of a broken
    pipe.
    """
    # `close_output` would close the output of the tests.
    monkeypatch.setattr(program, "close_output", lambda: None)
    assert run_with(BrokenPipeError(), monkeypatch) == 141
    assert capsys.readouterr().err == ""


def test_error_of_the_program_itself_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the program is shown with its traceback, and not as one sentence as if the user
    could mend it.
    """
    with pytest.raises(KeyError):
        run_with(KeyError("a mistake of ours"), monkeypatch)


def test_command_imports_no_other_command() -> None:
    """`./disttrain doctor` imports neither the other commands nor Pulumi. All of them together take
    half a second to import, and `pulumi up` starts the doctor once for each machine.
    """
    code = """
import sys
from cli.__main__ import COMMANDS, main
try:
    main(["doctor", "--help"])
except SystemExit:
    pass
ours = {command.module for command in COMMANDS.values()}
print("imported:", *sorted(ours & set(sys.modules)), "pulumi" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "imported: cli.doctor.command False"
    assert "--ask-sudo-password" in done.stdout


@pytest.mark.parametrize("words", [*program.COMMANDS, "runs delete", "runs compare"])
def test_example_in_the_help_can_be_copied(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The help of each command shows an example that it takes on one line, also on a narrow
    terminal. No word in the help is cut at a dash.
    """
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit, match=r"^0$"):
        program.main([*words.split(), "--help"])
    lines = capsys.readouterr().out.splitlines()
    start = "example: ./disttrain "
    (example,) = [line.removeprefix(start) for line in lines if line.startswith(start)]
    assert example.startswith(words)
    typed = shlex.split(example.partition(">")[0])
    assert program.parser_of(program.COMMANDS).parse_args(typed).subcommand == typed[0]
    assert [line for line in lines if re.search(r"\w-$", line)] == []


def test_each_command_has_its_line_in_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`./disttrain` alone lists each command with its help beside its name, in at most 80
    columns.
    """
    monkeypatch.setenv("COLUMNS", "80")
    assert program.main([]) == 2
    shown = capsys.readouterr().err
    for name, command in program.COMMANDS.items():
        first_words = " ".join(command.help.split()[:3])
        assert re.search(rf"^    {name} +{re.escape(first_words)}", shown, re.MULTILINE), name
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("words", [["completion", "bash"], ["--help"], ["status", "--help"]])
def test_reader_that_is_gone_before_the_end_is_no_error(words: list[str]) -> None:
    """A command whose reader is gone before the first line ends with 141 and prints no complaint.
    Otherwise Python would complain at its end about the output that it could not write.
    """
    reader, writer = os.pipe()
    os.close(reader)
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-m", "cli", *words],
        cwd=PROJECT,
        env=usual,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_output_into_a_full_disk_is_one_sentence() -> None:
    """A command whose output goes into a file, such as that of `logs` for a night, may fill the
    disk. It says so in a sentence, and ends with the status of an error: that of a traceback, 1,
    means for some commands that a run needs attention.
    """
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cli", "completion", "bash"],
            cwd=PROJECT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.stderr == (
        "error: the output cannot be written: No space left on device. Make room there, or write "
        "it to another place\n"
    )
    assert done.returncode == 2


def test_command_without_a_standard_output_ends_in_order() -> None:
    """A command that is started with its standard output closed, as some services do it, ends with
    0 and prints no complaint.
    """
    command = f"{sys.executable} -m cli completion bash >&-"
    done = subprocess.run(
        ["sh", "-c", command], cwd=PROJECT, stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_command_takes_nothing_from_the_folder_where_it_is_typed(tmp_path: Path) -> None:
    """`./disttrain` imports no module from the folder in which the user types it. Otherwise a
    package `cli` or a file `yaml.py` of the user's own project would run in its place.
    """
    (tmp_path / "cli").mkdir()
    for name in ("cli/__init__.py", "yaml.py", "pulumi_command.py"):
        (tmp_path / name).write_text("raise RuntimeError('not ours')\n")
    done = subprocess.run(
        [PROJECT / "disttrain", "runs", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "list, compare or delete the runs" in done.stdout


def test_sign_that_the_terminal_lacks_is_shown_by_its_escape() -> None:
    """A character that the terminal's encoding lacks is printed as its escape. Otherwise it would
    end the command, and names and log lines written by others can hold any character.
    """
    code = """
import sys
from cli import __main__ as program
from types import SimpleNamespace
sys.modules["shows"] = SimpleNamespace(
    add_arguments=lambda _: None, run=lambda _: print("it said \u2717") or 0
)
program.COMMANDS = {"show": program.Command("shows", "shows", "show")}
sys.exit(program.main(["show"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PROJECT,
        env={**os.environ, "PYTHONIOENCODING": "iso-8859-1"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"it said \\u2717\n", b"")


@pytest.mark.parametrize(
    ("words", "option", "second"),
    [
        ("logs --rank 0 --rank 5", "--rank", "5"),
        ("doctor --host ssh://a --host ssh://b", "--host", "ssh://b"),
        ("stop --stack=dev --stack=prod", "--stack", "prod"),
        ("runs compare a b --to a.svg --to b.svg", "--to", "b.svg"),
    ],
)
def test_option_with_two_values_is_refused(
    words: str, option: str, second: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that is given twice is refused. If the last value counted alone, a user who wants
    the logs of two ranks, or the findings of two hosts, would take those of one for all.
    """
    with pytest.raises(SystemExit, match="2"):
        program.main(words.split())
    said = f"argument {option}: it is given twice, the second time as {second!r}. Give it once\n"
    assert capsys.readouterr().err.endswith(said)
