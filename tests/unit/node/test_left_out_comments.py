"""Comments of scripts are not sent to machines, so that a changed comment does not make a script
run again.
"""

import subprocess

import pytest

from infra.node.shell_program import SCRIPTS, script_text, without_comments

FILES = sorted(str(path.relative_to(SCRIPTS)) for path in SCRIPTS.rglob("*.sh"))


def commands(text: str) -> str:
    """Return the commands of a script, as bash has understood them. None of them is run."""
    shown = f"f() {{\n{text}\n}}\ndeclare -f f"
    done = subprocess.run(["bash"], input=shown, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("file", FILES)
def test_commands_stay_without_comments(file: str) -> None:
    """Removing the comments of a script changes none of its commands. A quoted text of several
    lines would lose its lines that begin with `#`.
    """
    whole = (SCRIPTS / file).read_text()
    short = without_comments(whole)
    assert commands(short) == commands(whole)
    assert subprocess.run(["sh", "-n"], input=short, text=True, check=False).returncode == 0


@pytest.mark.parametrize("file", FILES)
def test_sent_text_has_no_comments(file: str) -> None:
    lines = [line for line in script_text(file).splitlines() if line.lstrip().startswith("#")]
    assert lines == []


@pytest.mark.parametrize("sign", ["<<END", "<<'END'", '<<-"END"', "<< END"])
def test_here_documents_stay_whole(sign: str) -> None:
    """A here-document keeps all its lines, because a line of a file that a script writes may begin
    with `#`.
    """
    file = f"cat {sign}\n# of the file\n\tEND\n" if "-" in sign else f"cat {sign}\n# of it\nEND\n"
    assert without_comments(f"# one\n{file}  # two\necho '# three' # four\n") == (
        f"{file}echo '# three' # four\n"
    )


def test_quoted_lines_would_be_noticed() -> None:
    """The comparison of commands in this file notices a quoted line that was taken for a comment,
    which the function cannot handle.
    """
    text = "awk '\n# a comment of awk\n{ print }'\n"
    assert commands(without_comments(text)) != commands(text)
