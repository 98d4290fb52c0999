"""The commands that stop, resume and extend a run, as far as no cluster is needed."""

import subprocess

import pytest

from cli.__main__ import COMMANDS, main, parser_of
from cli.completion import SHELLS, options_of, script
from cli.extend import commands
from cli.status.progress import Progress
from cli.stop import stopped
from tests.cli.records import RECORD


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
    said = stopped(RECORD, progress)
    assert words in said
    assert said.startswith("Job train-singlepod is stopped; ")
    assert said.endswith("./disttrain resume --stack dev")


def test_extend_types_what_a_user_would() -> None:
    assert commands(8000, "dev", "", yes=True) == [
        [
            *[
                "pulumi",
                "config",
                "set",
                "--path",
                "disttrain:run.train.max_steps",
                "8000",
                "--stack",
                "dev",
            ]
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


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_shows_an_example_that_it_takes(name: str) -> None:
    import shlex

    words = shlex.split(COMMANDS[name].example.partition(">")[0])
    assert words[0] == name
    assert parser_of(COMMANDS).parse_args(words).subcommand == name


def completed(words: str) -> list[str]:
    """What bash offers after these words of a line."""
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
    assert completed("disttrain ") == list(COMMANDS)


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_every_command(shell: str) -> None:
    text = script(shell, options_of(parser_of(COMMANDS)))
    assert [name for name in COMMANDS if name not in text] == []
