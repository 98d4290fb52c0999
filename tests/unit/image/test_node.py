"""Commands for another machine, whose users may have any login shell."""

import re
import shutil
import subprocess

import pytest

from infra.image.containerd import Containerd
from infra.image.node import Node, for_any_shell

TEXT = "printf '%s|' \"it's\" 'a \\\\ b' '!$HOME'\n# a comment\ncat; exit 3"
SAID = b"it's|a \\\\ b|!$HOME|content"


SHELLS = [shell for shell in ("sh", "bash", "zsh", "fish", "tcsh") if shutil.which(shell)]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_login_shell_runs_the_same_text(shell: str) -> None:
    """The text for a machine does the same under each login shell that is installed here: sh, bash,
    zsh, fish or tcsh. It is a single quoted word of signs that all of these shells leave as they
    are.
    """
    words = [shell, "-c", for_any_shell(TEXT)]
    done = subprocess.run(words, input=b"content", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (3, SAID), done.stderr
    # It is one word in single quotes, of signs that no shell changes there.
    assert re.fullmatch(r"exec sh -c '[\w+/= |$()\"-]+'", words[-1])


def test_long_text_fits_on_a_command_line() -> None:
    """A text of more than 128 KiB, such as one with the labels of an image's parts, can be sent.
    Linux takes no word of that length on a command line.
    """
    text = "".join(f"# sha256:{number:064d} label\n" for number in range(3000))
    assert len(text) > 200_000
    assert len(for_any_shell(text)) < 100_000
    assert Node(["sh", "-c"], remote=True).run(f"{text}cat", b"content") == "content"


def test_greeting_of_a_shell_is_no_answer() -> None:
    """What a shell prints before the command, such as the greeting of a `.bashrc`, which bash also
    reads for a command over SSH, is not part of the command's answer.
    """
    node = Node(["sh", "-c", 'echo Welcome; printf "to gpu1 "; exec sh -c "$0"'], remote=True)
    assert node.run("echo one; cat", b"two") == "one\ntwo"
    containerd = Containerd(["printf", "%s\\n"], "k8s.io", node=node)
    assert containerd.ask("images", "ls").splitlines()[-2:] == ["images", "ls"]
    assert "Welcome" not in containerd.ask("images", "ls")
    with containerd.content("sha256:0") as blob:
        assert b"Welcome" not in blob.read()
