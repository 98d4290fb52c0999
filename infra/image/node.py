"""Runs commands as root, on another machine by SSH or on this one.

Each command is shell text for a program such as `ssh node` or `sh -c`.
"""

import base64
import gzip
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field

from infra.node.shell_program import ROOT_FUNCTIONS, script_text

# On the RHEL family sudo's PATH lacks /usr/local/bin, where k3s is installed. The functions are
# those of infra/node/scripts/lib/root.sh, which every script uses.
_AS_ROOT = """\
PATH=$PATH:/usr/local/bin
{password}
{functions}
require_root
as_root env "PATH=$PATH" {command}"""

BEGIN_LINE = "-- disttrain: the output begins --"
CUT_OFF = 255  # ssh's exit status if the connection failed


def for_any_shell(text: str) -> str:
    """Return text with which any login shell runs `text` by `sh`.

    fish, tcsh and zsh read line breaks, backslashes and quotation marks in another way than `sh`.
    So the text is encoded. It is also compressed, because a command line has at most 128 KiB.
    """
    coded = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return f"exec sh -c 'eval \"$(echo {coded} | base64 -d | gzip -dc)\"'"


def after_begin_line(output: bytes) -> bytes:
    """Return the output of a command at a node, without the text before BEGIN_LINE. Pure.

    bash also reads `.bashrc` before a command over SSH, and `.bashrc` may print something.
    """
    before, found, said = output.partition(f"{BEGIN_LINE}\n".encode())
    return said if found else before


def failure_reason(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return the last error output of a command that failed, or its exit status if it has none.

    An ssh that shares a connection prints nothing if the connection breaks.
    """
    silent = "the connection broke" if done.returncode == CUT_OFF else "it said nothing"
    words = done.stderr.decode(errors="replace").strip()[-3000:]
    return words or f"{silent} (exit status {done.returncode})"


class NodeError(RuntimeError):
    """The node cannot be reached, or a command there failed. The text has the command's message."""


@dataclass(frozen=True)
class Node:
    """A machine on which commands are run.

    Args:
        shell: the command to which shell text is added as one word: `["ssh", "node"]`,
            `["sh", "-c"]`. Any login shell may read the text there.
        remote: whether commands go over a connection, which can be slow and can break.
        sudo_password: the password if sudo asks for one. It is sent by standard input.
        name: differs from that of every other machine.
    """

    shell: Sequence[str]
    remote: bool
    sudo_password: str = field(default="", repr=False)
    name: str = ""

    def as_root(self, command: Sequence[str]) -> list[str]:
        """Return the words that run `command` as root.

        Their input must begin with `root_input`, and `after_begin_line` must read their output.
        """
        text = _AS_ROOT.format(
            command=shlex.join(command),
            # `read` takes one line of the input, and the command gets the rest.
            password="IFS= read -r SUDO_PASSWORD" if self.sudo_password else "SUDO_PASSWORD=",
            functions=script_text(ROOT_FUNCTIONS),
        )
        return self._words(text)

    @property
    def root_input(self) -> bytes:
        """The start of the input of a command of `as_root`: sudo's password, or nothing."""
        return f"{self.sudo_password}\n".encode() if self.sudo_password else b""

    def run(self, text: str, content: bytes = b"") -> str:
        """Run shell text with `content` as its input, and return its output.

        Raises:
            NodeError: the text or the connection failed.
        """
        done = subprocess.run(self._words(text), input=content, capture_output=True, check=False)
        if done.returncode:
            raise NodeError(f"{self.shell[0]}: {failure_reason(done)}")
        return after_begin_line(done.stdout).decode(errors="replace")

    def run_as_root(self, command: Sequence[str], content: bytes = b"") -> str:
        """Run `command` as root with `content` as its input, and return its output.

        Raises:
            NodeError: the command or the connection failed.
        """
        given = self.root_input + content
        done = subprocess.run(self.as_root(command), input=given, capture_output=True, check=False)
        if done.returncode:
            raise NodeError(failure_reason(done))
        return after_begin_line(done.stdout).decode(errors="replace")

    def _words(self, text: str) -> list[str]:
        return [*self.shell, for_any_shell(f"echo '{BEGIN_LINE}'\n{text}")]
