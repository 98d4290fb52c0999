"""Whether the SSH agent that SSH_AUTH_SOCK of this machine names answers."""

import os
import socket

from cli.check import PROBE_SECONDS

NOT_NEEDED = "not needed"  # nothing is reached over SSH
NOT_SET = "not set"
ANSWERS = "answers"
# SSH_AGENTC_REQUEST_IDENTITIES with its length; the answer begins with a length of as many bytes
# (https://datatracker.ietf.org/doc/html/draft-miller-ssh-agent, sections 3 and 4.4).
_REQUEST_IDENTITIES = b"\0\0\0\1\x0b"
_LENGTH_BYTES = 4


def agent_line(*, needed: bool) -> str:
    """The fact `ssh_agent`: one of the words above, or the socket and why nobody answers there.

    Args:
        needed: whether the host is reached over SSH.
    """
    path = os.environ.get("SSH_AUTH_SOCK", "")
    if not (needed and path):
        return f"ssh_agent={NOT_SET if needed else NOT_NEEDED}"
    with socket.socket(socket.AF_UNIX) as agent:
        agent.settimeout(PROBE_SECONDS)
        try:
            agent.connect(path)
            agent.sendall(_REQUEST_IDENTITIES)
            answer = agent.recv(_LENGTH_BYTES)
        except TimeoutError:
            return f"ssh_agent={path}: no answer in {PROBE_SECONDS} s"
        except OSError as reason:  # a path that is too long has a text and no error number
            return f"ssh_agent={path}: {reason.strerror or reason}"
    return f"ssh_agent={ANSWERS if answer else f'{path}: it closes the connection'}"
