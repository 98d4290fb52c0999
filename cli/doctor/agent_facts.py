"""Finds out whether the SSH agent answers that SSH_AUTH_SOCK names on this machine."""

import os
import socket

from cli.check import PROBE_SECONDS

NOT_NEEDED = "not needed"  # nothing is reached over SSH
NOT_SET = "not set"
ANSWERS = "answers"
# The message SSH_AGENTC_REQUEST_IDENTITIES after its length, which has four bytes. The answer also
# begins with its length in four bytes
# (https://datatracker.ietf.org/doc/html/draft-miller-ssh-agent, sections 3 and 4.4).
_REQUEST_IDENTITIES = b"\0\0\0\1\x0b"
_LENGTH_BYTES = 4


def agent_line(*, needed: bool) -> str:
    """Return the fact `ssh_agent` as a line.

    Its value is NOT_NEEDED, NOT_SET or ANSWERS, or the path of the socket and the reason why no
    agent answers there.

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
        except OSError as reason:  # for a path that is too long, `strerror` is None
            return f"ssh_agent={path}: {reason.strerror or reason}"
    return f"ssh_agent={ANSWERS if answer else f'{path}: it closes the connection'}"
