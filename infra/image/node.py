"""Another machine, or root on this one: reached by a command that takes shell text, as ssh does."""

import base64
import gzip
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field

from infra.node.shell_program import ROOT_FUNCTIONS, script_text

# sudo's own PATH lacks /usr/local/bin on the RHEL family, where k3s lies. The functions are those
# of every script, infra/node/scripts/lib/root.sh.
_AS_ROOT = """\
PATH=$PATH:/usr/local/bin
{password}
{functions}
require_root
as_root env "PATH=$PATH" {command}"""

MARK = "-- disttrain: the output begins --"
CUT_OFF = 255  # ssh's exit status when it is the connection that failed


def for_any_shell(text: str) -> str:
    """Text by which whatever login shell a user has runs the text of `sh`.

    fish, tcsh and zsh read line breaks, backslashes and quotation marks in another way than `sh`.
    So the text is coded. It is compressed too, as a command line has at most 128 KiB.
    """
    coded = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return f"exec sh -c 'eval \"$(echo {coded} | base64 -d | gzip -dc)\"'"


def after_mark(output: bytes) -> bytes:
    """What a command at a node has printed, without what stands before its mark. Pure.

    bash reads `.bashrc` also before a command over SSH, and it may print something.
    """
    before, mark, said = output.partition(f"{MARK}\n".encode())
    return said if mark else before


def failure_reason(done: subprocess.CompletedProcess[bytes]) -> str:
    """The last words of a command that failed; ssh beside a shared connection has none."""
    silent = "the connection broke" if done.returncode == CUT_OFF else "it said nothing"
    words = done.stderr.decode(errors="replace").strip()[-3000:]
    return words or f"{silent} (exit status {done.returncode})"


class NodeError(RuntimeError):
    """The node cannot be reached, or a command there failed; the text has its own words."""


@dataclass(frozen=True)
class Node:
    """A machine.

    Args:
        shell: the command to which the text is added as one word: `["ssh", "node"]`,
            `["sh", "-c"]`. Any login shell may read it there.
        remote: a connection lies between, which can be slow and can break.
        sudo_password: for sudo where it asks; goes by standard input.
        name: tells machines apart.
    """

    shell: Sequence[str]
    remote: bool
    sudo_password: str = field(default="", repr=False)
    name: str = ""

    def as_root(self, command: Sequence[str]) -> list[str]:
        """The words that run `command` as root; `root_input` has to go ahead of its input.

        The output has to be read with `after_mark`.
        """
        text = _AS_ROOT.format(
            command=shlex.join(command),
            # the shell reads no further than the line, and the command gets the rest
            password="IFS= read -r SUDO_PASSWORD" if self.sudo_password else "SUDO_PASSWORD=",
            functions=script_text(ROOT_FUNCTIONS),
        )
        return self._words(text)

    @property
    def root_input(self) -> bytes:
        """What `as_root` reads first."""
        return f"{self.sudo_password}\n".encode() if self.sudo_password else b""

    def run(self, text: str, content: bytes = b"") -> str:
        """Run shell text with `content` as its input; returns its output.

        Raises:
            NodeError: it failed, or the connection did.
        """
        done = subprocess.run(self._words(text), input=content, capture_output=True, check=False)
        if done.returncode:
            raise NodeError(f"{self.shell[0]}: {failure_reason(done)}")
        return after_mark(done.stdout).decode(errors="replace")

    def run_as_root(self, command: Sequence[str], content: bytes = b"") -> str:
        """Run `command` as root with `content` as its input; returns its output.

        Raises:
            NodeError: it failed, or the connection did.
        """
        given = self.root_input + content
        done = subprocess.run(self.as_root(command), input=given, capture_output=True, check=False)
        if done.returncode:
            raise NodeError(failure_reason(done))
        return after_mark(done.stdout).decode(errors="replace")

    def _words(self, text: str) -> list[str]:
        return [*self.shell, for_any_shell(f"echo '{MARK}'\n{text}")]
