"""Words of `program.command` that Pulumi and YAML do not read as texts."""

import pytest

from tests.unit.settings.reading import refusal, run


def test_a_true_says_how_to_set_a_text() -> None:
    """A boolean in `program.command` is refused with the command that sets it as a text. `pulumi
    config set` reads `True` as a boolean, and no quotation marks can change that.
    """
    said = refusal({"program": {"command": ["python", "train.py", "--compile", True]}})
    assert said.count("  - program.command") == 1
    assert "program.command[3]: true cannot be used: Pulumi reads it as a boolean" in said
    assert "pulumi config set --type string --path 'program.command[3]' True" in said


@pytest.mark.parametrize(
    ("command", "index", "name"),
    [
        (["python", "train.py", "--out=$DISTTRAIN_CHECKPOINT_DIR"], 2, "DISTTRAIN_CHECKPOINT_DIR"),
        (["python", "train.py", "--rank", "${RANK}"], 3, "RANK"),
        (["env", "PORT=$(MASTER_PORT)", "python", "train.py"], 1, "MASTER_PORT"),
        (["bash", "run.sh", "$WORLD_SIZE"], 2, "WORLD_SIZE"),
    ],
)
def test_variable_that_no_shell_replaces_is_refused(
    command: list[str], index: int, name: str
) -> None:
    """A variable of the pods in a word that no shell reads is refused. A program would save to a
    folder with this name in its container, and lose its checkpoints with it.
    """
    said = refusal({"program": {"command": command}})
    assert said.count("  - program.command") == 1
    assert (
        f"program.command[{index}]: {command[index]!r} cannot be used: no shell replaces {name} in "
        "it, so the program would get it as it is written. Let a shell start the program, as in "
        '[sh, -c, "exec python train.py --out $DISTTRAIN_CHECKPOINT_DIR"].'
    ) in said


@pytest.mark.parametrize(
    ("command", "index"),
    [
        (["python", "prepare.py", "&&", "python", "train.py"], 2),
        (["python", "train.py", "||", "true"], 2),
        (["python", "train.py", "2>&1"], 2),
    ],
)
def test_word_that_only_a_shell_understands_is_refused(command: list[str], index: int) -> None:
    """A word such as `&&` that no shell reads is refused: only the first program would run, and end
    the run as finished.
    """
    said = refusal({"program": {"command": command}})
    assert said.count("  - program.command") == 1
    assert (
        f"program.command[{index}]: {command[index]!r} cannot be used: no shell reads it, so the "
        "first program would get it and all words behind it. Let a shell start the programs, as in "
        '[sh, -c, "python prepare.py && exec python train.py"].'
    ) in said


@pytest.mark.parametrize(
    "line", ["python train.py | tee /data/log", "cd /data; python train.py 2>&1 |tee -a log"]
)
def test_pipe_that_hides_how_the_program_ended_is_refused(line: str) -> None:
    """A pipe to `tee` is refused where the shell ends as `tee` does. A training that has failed
    would count as finished, and would not be started again.
    """
    said = refusal({"program": {"command": ["bash", "-c", line]}})
    assert said.count("  - program.command") == 1
    assert (
        f"program.command[2]: {line!r} cannot be used: a shell ends with the exit code of tee, so "
        "the run would count as finished if the program has failed. Leave tee out, as the run's "
        "folder has a log of all lines, or write [bash, -o, pipefail, -c, ...]."
    ) in said


@pytest.mark.parametrize(
    "command",
    [
        ["bash", "-o", "pipefail", "-c", "python train.py | tee /data/log"],
        ["bash", "-c", "set -eo pipefail; python train.py | tee /data/log"],
        ["bash", "-c", "python train.py > >(tee /data/log)"],
        ["bash", "-c", "python make.py | tee /data/seed | python train.py"],
        ["sh", "-c", "exec python train.py --rank $RANK"],
        ["bash", "-c", "python a.py $0 && python b.py", "&&"],
        ["python", "train.py", "--separator", "|", "--sign", "&"],
        ["env", "A=b", "bash", "-ec", "exec python train.py --rank $RANK"],
        ["composer", "train.py", "$DISTTRAIN_CHECKPOINT_DIR"],
        ["python", "train.py", "--pattern", "loss$", "--price", "$5", "${oc.env:RANK}", "$RANKS"],
    ],
)
def test_words_that_somebody_else_reads_are_taken(command: list[str]) -> None:
    """Texts for a shell, or with another meaning of the sign, are accepted."""
    one_rank = {"gpusPerPod": 1}
    assert run({"program": {"command": command}, **one_rank}).config.program.command == (*command,)
