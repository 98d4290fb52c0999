"""A server may join or leave only if etcd bears it: what the script k3s-member.sh does with the
list of servers that k3s gives.

k3s is a short stand-in here; tests/node has a real etcd and the same stand-in for k3s.
"""

from pathlib import Path

import pytest

from infra.node.shell_program import script_text
from tests.unit.node.member_script import K3S, LEFT, WELL, ask, asked, member_line
from tests.unit.run_script import run_text

LEAVING = [
    (WELL, ""),
    ({"first": "True True", "two": "True True"}, ""),
    ({**WELL, "two": "Unknown False"}, ""),  # the server that leaves is the one that is down
    ({"first": "True True", "three": "True True"}, ""),  # `two` is no member of etcd
    ({**WELL, "three": LEFT}, ""),  # `three` leaves at the same time
    ({**WELL, "two": LEFT, "three": LEFT}, ""),
    ({"first": "True True", "two": LEFT, "three": "True True"}, ""),
    ({**WELL, "three": LEFT, "four": "Unknown True"}, "Bring back: four."),
    (
        {**WELL, "three": "True False"},
        "of the 2 others 1 would be left that answer, and etcd needs 2",
    ),
    ({**WELL, "three": "Unknown True"}, "Bring back: three."),
    ({**WELL, "four": "True True", "five": "True True"}, ""),
    ({**WELL, "four": "Unknown False", "five": "True True"}, ""),
    ({**WELL, "four": "False False", "five": "True False"}, "of the 4 others 2 would be left"),
]


@pytest.mark.parametrize(("members", "refused"), LEAVING)
@pytest.mark.parametrize("action", ["drain", "leave", "forget"])
def test_server_leaves_where_the_others_are_a_majority(
    tmp_path: Path, action: str, members: dict[str, str], refused: str
) -> None:
    """A server may leave only if the others that answer are more than half of the members that
    remain. Otherwise nothing is changed, and the error says which servers have to come back.
    """
    done = ask(tmp_path, action, members)
    changed = [asked(tmp_path, "kubectl", word) for word in (" drain ", " delete ", " annotate ")]
    if refused:
        assert refused in done.stderr
        assert done.returncode == 1
        assert not any(changed)
    else:
        assert done.returncode == 0, done.stderr
        assert changed == [
            action == "drain",
            action == "forget",
            action == "leave" and members.get("two", LEFT) != LEFT,
        ]


@pytest.mark.parametrize("action", ["join", "drain", "leave", "forget"])
def test_nothing_is_done_to_a_server_while_k3s_does_not_answer(tmp_path: Path, action: str) -> None:
    """While the k3s of the first machine does not answer, no server joins or leaves. An agent is
    forgotten without an answer.
    """
    done = ask(tmp_path, action, WELL, answers=False)
    assert done.returncode == 1
    assert "does not answer, so nothing was done to the server two" in done.stderr
    assert not asked(tmp_path, "kubectl", "delete")
    agent = ask(tmp_path, "forget", WELL, answers=False, ROLE="")
    assert agent.returncode == 0


@pytest.mark.parametrize("action", ["join", "drain", "leave", "forget"])
def test_unknown_members_are_no_good_ones(tmp_path: Path, action: str) -> None:
    """If k3s does not list its servers, no server joins or leaves. Otherwise a server could join
    while another one is lost, which etcd does not allow.
    """
    done = ask(tmp_path, action, None)
    assert done.returncode == 1
    assert "does not say which servers are in etcd" in done.stderr
    assert "not set" not in done.stderr
    assert "the-secret" not in done.stdout
    assert not any(asked(tmp_path, word) for word in ("drain", "delete", "annotate"))


def test_leaving_server_is_always_taken_out(tmp_path: Path) -> None:
    """A server that leaves is taken out of etcd although a second request for the list of servers
    would fail. Otherwise it would stay a member of etcd for good.
    """
    (tmp_path / "once").touch()
    done = ask(tmp_path, "leave", WELL)
    assert done.returncode == 0, done.stderr
    assert asked(tmp_path, "annotate", "etcd.k3s.cattle.io/remove=true")


@pytest.mark.parametrize(
    ("members", "new", "refused"),
    [
        ({"first": "True True", "three": "True True"}, "yes", ""),
        ({"first": "True True", "three": "Unknown False"}, "yes", "that is so of: three."),
        ({"first": "True True", "three": "True False"}, "", "that is so of: three."),
        ({**WELL, "three": "Unknown False"}, "yes", "that is so of: three."),
        ({**WELL, "three": "Unknown False"}, "", ""),  # `two` is a member and is only repaired
        ({**WELL, "three": LEFT}, "yes", ""),
        ({**WELL, "two": "Unknown False"}, "yes", ""),  # the old member of `two` goes first
    ],
)
def test_server_joins_where_all_others_answer(
    tmp_path: Path, members: dict[str, str], new: str, refused: str
) -> None:
    """A new server may join only if all other members of etcd answer. A server that is a member
    already is only repaired, and is not refused.
    """
    done = ask(tmp_path, "join", members, NEW_MACHINE=new)
    assert "the-secret" not in done.stderr
    if refused:
        assert "the server two cannot join" in done.stderr
        assert refused in done.stderr
        assert "the-secret" not in done.stdout
        assert not asked(tmp_path, "kubectl", "delete")
    else:
        assert "token=the-secret\nagent_secret=the-secret\n" in done.stdout
        assert asked(tmp_path, "kubectl", "delete", "node") == (new == "yes")


def test_repair_is_no_join_while_members_are_unknown(tmp_path: Path) -> None:
    """A request for the list of servers that fails is made again before a server counts as new.
    Otherwise the repair of a member beside a lost server would be refused, and the repair may be
    what brings the majority back.
    """
    (tmp_path / "fails-once").touch()
    done = ask(tmp_path, "join", {**WELL, "three": "Unknown False"}, settle_seconds=20)
    assert done.returncode == 0, done.stderr
    assert "token=the-secret" in done.stdout


def test_server_is_up_when_its_member_votes(tmp_path: Path) -> None:
    """A server counts as up only if its Node is Ready and it votes in etcd. While it only learns,
    the cluster could not bear the loss of another server.
    """
    text = script_text("k3s-member.sh")
    body = text[: text.index('\nmain "$@"')] + '\nis_voter "$NODE"\n'
    for state, status in (("True True", 0), ("True False", 1), ("Unknown True", 1), ("True", 1)):
        lines = map(member_line, (("two-more", "True True"), ("two", state)))
        (tmp_path / "members").write_text("".join(lines))
        script = body.replace("BINARY=/usr/local/bin/k3s", f"BINARY={tmp_path}/k3s")
        (tmp_path / "k3s").write_text(K3S)
        (tmp_path / "k3s").chmod(0o755)
        given = {"NODE": "two", "GRACE_SECONDS": "1", "ROLE": "server"}
        assert run_text(script, "x", given, "user", {}).returncode == status


@pytest.mark.parametrize(
    ("pods", "limit"),
    [("120\n\n3720\n30\n", "3780s"), ("30\n", "180s"), ("", "180s"), (None, "180s")],
)
def test_drain_waits_for_long_saves(tmp_path: Path, pods: str | None, limit: str) -> None:
    """A drain waits a minute longer than the pods of the machine may take to end. That is more than
    `terminationGraceSeconds` if they have a mirror, or are of a stack with another setting. It used
    to go on before, and k3s was removed under pods that still copied a checkpoint.
    """
    if pods is not None:
        (tmp_path / "pods").write_text(pods)
    done = ask(tmp_path, "drain", WELL, GRACE_SECONDS="120")
    assert done.returncode == 0, done.stderr
    assert asked(tmp_path, "get pods", "spec.nodeName=two", "part-of=disttrain")
    assert asked(tmp_path, "drain two", f"--timeout={limit}")
