"""Runs the script k3s-member.sh with a stand-in for k3s, which lists the servers."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from infra.node.shell_program import script_text
from tests.unit.run_script import run_text

K3S = """#!/bin/sh
echo "$*" >>"$(dirname "$0")/asked"
case "$*" in
  *"get --raw /readyz"*) [ -e "$(dirname "$0")/answers" ] || exit 1 ;;
  *"EtcdIsVoter"*)
    [ ! -e "$(dirname "$0")/fails-once" ] || { rm "$(dirname "$0")/fails-once"; exit 1; }
    cat "$(dirname "$0")/members" || exit 1
    [ ! -e "$(dirname "$0")/once" ] || rm "$(dirname "$0")/members"
    ;;
  *"get pods"*"terminationGracePeriodSeconds"*) cat "$(dirname "$0")/pods" || exit 1 ;;
  *"removed-node-name"*) echo server-two-1234 ;;
  *"metadata.labels"*) echo "$NODE"true ;;
  *"get node"*) echo node/x ;;
esac
"""
# A server that etcd has removed, and whose Node still exists.
LEFT = "Unknown Unknown, and etcd has let it go"
WELL = {"first": "True True", "two": "True True", "three": "True True"}


def ask(
    folder: Path,
    action: str,
    members: Mapping[str, str] | None,
    *,
    answers: bool = True,
    settle_seconds: int = 0,
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """Run the script for the server `two`; `members` has the status of each server in etcd by its
    name.

    The stand-in for k3s lists no members if `members` is None. If the folder has a file `once`, it
    lists them only once; with a file `fails-once` it fails the first time. With `answers` false it
    answers nothing at all.
    """
    programs = {"k3s": K3S, "systemctl": "#!/bin/sh\necho active\n", "sleep": "#!/bin/sh\n"}
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    if members is not None:
        (folder / "members").write_text("".join(map(member_line, members.items())))
    (folder / "secret").write_text("the-secret")
    if answers:
        (folder / "answers").touch()
    text = script_text("k3s-member.sh")
    for before, after in (
        ("BINARY=/usr/local/bin/k3s", f"BINARY={folder}/k3s"),
        ("SETTLE_SECONDS=20", f"SETTLE_SECONDS={settle_seconds}"),
        ("ANSWER_SECONDS=30", "ANSWER_SECONDS=0"),
        ("/run/disttrain-", f"{folder}/"),
        ("TOKEN=/var/lib/rancher/k3s/server/token", f"TOKEN={folder}/secret"),
        ("TOKEN=/var/lib/rancher/k3s/server/agent-token", f"TOKEN={folder}/secret"),
        ("SECRET_FILE=/etc/rancher/k3s/disttrain-agent-secret", f"SECRET_FILE={folder}/secret"),
    ):
        assert before in text, before
        text = text.replace(before, after)
    given = {"NODE": "two", "GRACE_SECONDS": "1", "ROLE": "server", **more}
    return run_text(text, action, given, "user", {"PATH": f"{folder}:{os.environ['PATH']}"})


def member_line(member: tuple[str, str]) -> str:
    """Return the line of a member, in the form that the script asks of kubectl."""
    name, is_ = member
    status, _, has_left = is_.partition(",")
    return f"{name} left={f'{name}-1234' if has_left else ''} {status}\n"


def asked(folder: Path, *words: str) -> bool:
    """Return whether k3s' kubectl was called with all of these words in one call."""
    return any(
        all(w in line for w in words) for line in (folder / "asked").read_text().splitlines()
    )
