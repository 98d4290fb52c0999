"""The commands that stop, resume, extend and sample a run, as far as they need no cluster.

It also tests the completion of shells, and what the commands say when pulumi fails.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.__main__ import COMMANDS, main, parser_of
from cli.completion import SHELLS, options_of, script
from cli.extend import commands
from cli.sample import split
from cli.stack_plan import shown_settings
from cli.status.progress import Progress
from cli.stop import stopped
from infra.kube.api_server.access import Access
from sandbox.venvs import PROJECT
from tests.cli.records import RECORD

SubCommands: Any = argparse._SubParsersAction  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress(step=20, saved_step=20), "it has saved step 20."),
        (Progress(step=25, saved_step=20), "steps up to 25 are repeated"),
        (Progress(saved_step=20), "it has saved step 20."),
        (Progress(step=20), "what it has saved was not seen"),
    ],
)
def test_stop_tells_only_what_was_seen(progress: Progress, words: str) -> None:
    """`stop` says which step is saved and which steps will be repeated, as far as the log has shown
    it, and how to resume.
    """
    said = stopped(RECORD, progress)
    assert words in said
    assert said.startswith("Job train-singlepod is stopped; ")
    assert said.endswith("./disttrain resume --stack dev")


def test_extend_types_what_a_user_would() -> None:
    """`extend` runs the two commands of pulumi that a user would type."""
    assert commands(8000, "dev", "", yes=True) == [
        [
            *("pulumi", "config", "set"),
            *("--path", "disttrain:run.train.max_steps", "8000", "--stack", "dev"),
        ],
        ["pulumi", "up", "--stack", "dev", "--yes"],
    ]


def test_extend_refuses_what_makes_the_run_shorter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.extend.run_length", lambda stack: 4000)
    monkeypatch.setattr("cli.extend.subprocess.run", None)  # nothing may be started
    assert main(["extend", "--steps", "4000"]) == 2
    assert "--steps: 4000 cannot be used: the run has 4000 steps" in capsys.readouterr().err


def pulumi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a stand-in for the engine's program on PATH: a shell script with this text."""
    program = folder / "pulumi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_extend_that_was_declined_names_the_setting_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """If `pulumi up` ends badly or is declined, `extend` says that the new length stays in the
    settings, and how to set the old one. Otherwise the next `up` would train longer without a
    warning.
    """
    monkeypatch.setattr("cli.extend.run_length", lambda stack: 4000)
    pulumi(tmp_path, monkeypatch, 'case $1 in up) exit 255 ;; esac; echo "did $*"')
    assert main(["extend", "--steps", "8000", "--stack", "dev"]) == 255
    out, err = capfd.readouterr()
    assert "did config set --path disttrain:run.train.max_steps 8000 --stack dev" in out
    assert "run.train.max_steps is 8000 now" in err
    assert "was not made longer" not in err  # an `up` that fails at its end has made it longer
    back = "To go back: pulumi config set --path disttrain:run.train.max_steps 4000 --stack dev"
    assert back in err


def test_extend_finds_the_settings_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`--config-file` of `extend` is a path from the folder in which the user types it. pulumi
    itself runs in the project's folder.
    """
    monkeypatch.setattr("cli.extend.run_length", lambda stack: 4000)
    pulumi(tmp_path, monkeypatch, 'echo "did $*"')
    monkeypatch.chdir(tmp_path)
    words = ["extend", "--steps", "8000", "--yes", "--config-file", "mine.yaml"]
    assert main(words) == 2
    assert "--config-file: 'mine.yaml' cannot be used" in capfd.readouterr().err
    (tmp_path / "mine.yaml").touch()
    assert main(words) == 0
    assert f"did up --config-file {tmp_path}/mine.yaml --yes" in capfd.readouterr().out


UP_THAT_ENDS_IN_ORDER = """
case $1 in
stack) echo '{"maxSteps": 4000}' ;;
up)
  trap 'sleep 1; echo the engine has ended in order; exit 255' INT
  echo the update runs
  while :; do sleep 0.1; done ;;
esac"""


@pytest.mark.timeout(120)
def test_ctrl_c_in_extend_leaves_the_end_to_pulumi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C, `extend` waits until pulumi has ended in order. An engine that is killed leaves
    its stack locked, and operations whose outcome nobody knows.
    """
    pulumi(tmp_path, monkeypatch, UP_THAT_ENDS_IN_ORDER)
    with subprocess.Popen(
        [sys.executable, "-m", "cli", "extend", "--steps", "8000", "--yes"],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        said = ""
        for line in process.stdout:
            said += line
            if line == "the update runs\n":
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert "the engine has ended in order" in said
    assert "To go back: pulumi config set" in said
    assert process.returncode == 255


def test_pulumi_without_an_answer_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pulumi that gives no answer ends the command with a sentence that names the call. A backend
    in an object store that is out of reach is such a case.
    """
    monkeypatch.setattr("cli.pulumi_outputs.PULUMI_SECONDS", 0.2)
    pulumi(tmp_path, monkeypatch, "exec sleep 60")
    assert main(["status", "--stack", "dev"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: pulumi stack output")
    assert "gave no answer in 0.2 s" in said


@pytest.mark.parametrize(
    ("words", "pulumis", "said"),
    [
        ((), "no stack selected; please use", "no stack is selected. Name"),
        (
            ("--stack", "nope"),
            "no stack named 'nope' found",
            "--stack: 'nope' cannot be used: there",
        ),
        (
            (),
            "PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI sessions",
            "Pulumi is not logged in, so it does not know where the stacks are kept: pulumi login",
        ),
        (
            (),
            "could not deserialize deployment: constructing secrets manager: passphrase must be "
            "set with PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE environment "
            "variables",
            "Pulumi needs the stack's passphrase, which `pulumi stack init` has asked for. Set",
        ),
        (
            (),
            "incorrect passphrase",
            "the passphrase in PULUMI_CONFIG_PASSPHRASE or in the file PULUMI_CONFIG_PASSPHRASE_F",
        ),
        (("--stack", "a/b"), "unable to open state", "pulumi stack output --json --show-secrets"),
    ],
)
def test_stack_that_is_not_there_is_said_with_a_way_out(
    tmp_path: Path,
    words: tuple[str, ...],
    pulumis: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """If no stack is selected or pulumi does not know the stack, the command says so and names
    `pulumi stack ls`. Without a login or the passphrase, it says what to do. Any other error
    is repeated. The words are those of pulumi 3.259.
    """
    pulumi(tmp_path, monkeypatch, f'echo "error: {pulumis}" >&2; exit 255')
    assert main(["goodput", *words]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: {said}")
    assert ("pulumi stack ls" in shown) == ("no stack" in pulumis)


def test_settings_without_an_answer_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`doctor --stack` asks pulumi for encrypted settings, and says in one sentence that pulumi
    gives no answer.
    """
    monkeypatch.setattr("cli.pulumi_outputs.PULUMI_SECONDS", 0.2)
    pulumi(tmp_path, monkeypatch, "exec sleep 60")
    with pytest.raises(ValueError, match=r"^pulumi config --show-secrets .* answer in 0\.2 s\."):
        shown_settings("dev")


@pytest.mark.parametrize(
    ("words", "usage", "reason"),
    [
        (["verify", "--bogus"], "./disttrain verify [-h]", "arguments: --bogus"),
        (["sample", "--seed", "1"], "./disttrain sample [-h]", "after --, such as sample --"),
        (["shell", "-l"], "./disttrain shell [-h]", "after --, such as shell --rank 0 --"),
        (["runs", "delete", "a", "--force"], "./disttrain runs [-h]", "arguments: --force"),
    ],
)
def test_unknown_option_is_answered_with_the_usage_of_its_command(
    words: list[str], usage: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith(f"usage: {usage}")
    assert reason in said


@pytest.mark.parametrize(
    ("words", "name", "options"),
    [
        ([], "", []),
        (["--", "--seed", "1"], "", ["--seed", "1"]),
        (["--seed", "1"], "", ["--seed", "1"]),  # newer Pythons take the -- away
        (["wide"], "wide", []),
        (["wide", "--", "--prompt", "To be"], "wide", ["--prompt", "To be"]),
        (["--", "--seed", "1", "--"], "", ["--seed", "1", "--"]),
        (["wide", "--", "--seed", "1", "--", "a"], "wide", ["--seed", "1", "--", "a"]),
    ],
)
def test_sample_knows_a_run_from_the_trainers_options(
    words: list[str], name: str, options: list[str]
) -> None:
    """`sample` tells the name of a run from the options that are meant for the trainer."""
    assert split(words) == (name, options)


@pytest.mark.parametrize("word", ["--stack", "--seed", "other"])
def test_sample_says_where_options_of_a_run_belong(word: str) -> None:
    """`sample` refuses words that follow the name of a run without ` -- `. Otherwise they would go
    to the trainer, which has no option such as `--stack`.
    """
    with pytest.raises(ValueError, match=rf"^RUN: '{word}' cannot follow it\."):
        split(["wide", word, "dev"])


@pytest.mark.parametrize("name", ["a/b", ".."])
def test_sample_refuses_what_is_no_run(name: str) -> None:
    with pytest.raises(ValueError, match="RUN"):
        split([name])


def completed(words: str) -> list[str]:
    """Return what bash offers after these words of a line."""
    line = words.split(" ")
    text = script("bash", options_of(parser_of(COMMANDS)))
    ask = f'{text}\nCOMP_WORDS=({" ".join(line[:-1])} "{line[-1]}"); COMP_CWORD={len(line) - 1}\n'
    ask += '_disttrain; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_commands_and_their_options() -> None:
    assert completed("disttrain st") == ["status", "stop"]
    assert completed("disttrain extend --s") == ["--steps", "--stack"]
    assert completed("disttrain completion f") == ["fish"]
    assert completed("disttrain runs delete dev --y") == ["--yes"]
    assert completed("disttrain ") == list(COMMANDS)


def usages(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the usage that argparse prints for a parser and for each command in it."""
    yield parser.format_usage()
    for action in vars(parser)["_actions"]:
        if isinstance(action, SubCommands):
            for inner in action.choices.values():
                yield from usages(inner)


@pytest.mark.parametrize("name", COMMANDS)
def test_completion_knows_flags_of_every_parser(name: str) -> None:
    """The completion knows the options of a command's own subcommands too, such as `--yes` of `runs
    delete`.
    """
    parser = parser_of(COMMANDS)
    (commands,) = [a for a in vars(parser)["_actions"] if isinstance(a, SubCommands)]
    flags = set(re.findall(r"--[a-z][a-z-]*", " ".join(usages(commands.choices[name]))))
    assert flags - set(options_of(parser)[name]) == set()


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_every_command(shell: str) -> None:
    text = script(shell, options_of(parser_of(COMMANDS)))
    assert [name for name in COMMANDS if name not in text] == []


def test_zsh_gets_its_own_completion_first_if_it_has_none() -> None:
    """The script for zsh starts zsh's own completion if the shell has not. A fresh zsh has no
    `compdef`, which the completion in bash's way needs. (It was tried by hand in zsh 5.9, with and
    without.)
    """
    lines = script("zsh", options_of(parser_of(COMMANDS))).splitlines()
    assert lines[:3] == [
        "autoload -U +X compinit bashcompinit",
        "(( $+functions[compdef] )) || compinit -D",
        "bashcompinit",
    ]


def test_fish_still_completes_files_after_a_command() -> None:
    """The script for fish leaves files to be completed after a command, which `-f` would hide.
    `push` and several options take a file or a folder. (It was tried by hand in fish 3.6.)
    """
    first, *rest = script("fish", options_of(parser_of(COMMANDS))).splitlines()
    assert first.startswith("complete -c disttrain -f -n __fish_use_subcommand ")
    assert len(rest) == len(COMMANDS)
    assert [line for line in rest if " -f " in line] == []


@pytest.mark.parametrize(
    ("status", "hint"), [(0, ""), (78, "`./disttrain runs` shows which runs have a checkpoint\n")]
)
def test_sample_of_a_run_that_is_not_there_says_where_to_look(
    status: int, hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`sample` of a run without a checkpoint names `./disttrain runs`, which shows the runs that
    have one. The trainer in the pod knows only the folder that it was given.
    """
    place = SimpleNamespace(access=Access(kubeconfig_path="none"), runs_path="/data/runs")
    monkeypatch.setattr("cli.sample.volume_place", lambda _: place)
    monkeypatch.setattr("cli.sample.sample", lambda *_: status)
    # `end_in_order` sets signal handlers of the whole process.
    monkeypatch.setattr("cli.sample.end_in_order", lambda: None)
    assert main(["sample", "nope"]) == status
    assert capsys.readouterr().err == hint
