"""Another machine, or root on this one: reached by a command that takes shell text, as ssh does."""

import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field

# sudo's own PATH lacks /usr/local/bin on the RHEL family, where k3s lies.
_AS_ROOT = """\
PATH=$PATH:/usr/local/bin
if [ "$(id -u)" = 0 ]; then {password} {command}
elif sudo -n true 2>/dev/null; then {password} sudo -n env "PATH=$PATH" {command}
else sudo {options} env "PATH=$PATH" {command}
fi"""


CUT_OFF = 255  # ssh's exit status when it is the connection that failed


def why(done: subprocess.CompletedProcess[bytes]) -> str:
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
            `["sh", "-c"]`.
        remote: a connection lies between, which can be slow and can break.
        sudo_password: for sudo where it asks; goes by standard input.
    """

    shell: Sequence[str]
    remote: bool
    sudo_password: str = field(default="", repr=False)

    def as_root(self, command: Sequence[str]) -> list[str]:
        """The words that run `command` as root; `root_input` has to go ahead of its input."""
        text = _AS_ROOT.format(
            command=shlex.join(command),
            # where sudo asks for none, the line must not reach the command
            password="IFS= read -r _;" if self.sudo_password else "",
            options="-S -p ''" if self.sudo_password else "-n",
        )
        return [*self.shell, text]

    @property
    def root_input(self) -> bytes:
        """What `as_root` reads first."""
        return f"{self.sudo_password}\n".encode() if self.sudo_password else b""

    def run(self, text: str, content: bytes = b"") -> str:
        """Run shell text with `content` as its input; returns its output.

        Raises:
            NodeError: it failed, or the connection did.
        """
        done = subprocess.run([*self.shell, text], input=content, capture_output=True, check=False)
        if done.returncode:
            raise NodeError(f"{self.shell[0]}: {why(done)}")
        return done.stdout.decode(errors="replace")
