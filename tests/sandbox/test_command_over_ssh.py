"""The rules and the faults of the command plugin over SSH, on which the program relies or which it
has to live with; see test_command_provider.py.
"""

import json
import signal

from tests.sandbox.command_lab import BESIDE, SshServer, Stack, finish, read_until, wait_for


def test_a_remote_command_has_the_same_life_cycle(stack: Stack, ssh: SshServer) -> None:
    """A remote command is created, updated and deleted as a local one is, and its private key is
    encrypted in the state.
    """
    program = """
        remote.Command("c", connection=remote.ConnectionArgs(**HERE), stdin=f"text-{N}",
                       create=f"echo create >> {LOG}; cat; echo no >&2",
                       update=f"echo update >> {LOG}; cat; echo $ALLOWED >&2",
                       delete=f"echo delete-{N} >> {LOG}",
                       environment={"ALLOWED": f"as-{N}"}, add_previous_output_in_env=False)
    """
    given = {"HERE": ssh.connection(), "LOG": str(stack.log)}
    stack.up(program, N=1, **given)
    outputs = stack.outputs("c")
    assert (outputs["stdout"], outputs["stderr"]) == ("text-1", "no")
    assert "ciphertext" in outputs["connection"]
    assert "PRIVATE KEY" not in stack.state_text()
    assert "2 unchanged" in stack.up(program, N=1, **given)
    stack.up(program, N=2, **given)
    outputs = stack.outputs("c")
    assert (outputs["stdout"], outputs["stderr"]) == ("text-2", "as-2")
    stack.destroy()
    assert stack.actions() == ["create", "update", "delete-2"]


def test_refused_previous_outputs_are_only_a_warning(stack: Stack, ssh: SshServer) -> None:
    """An SSH server that refuses the variables with the previous outputs causes only a warning."""
    program = 'remote.Command("c", connection=remote.ConnectionArgs(**HERE), create=f"echo {N}")'
    stack.up(program, N=1, HERE=ssh.connection())
    output = stack.up(program, warns=True, N=2, HERE=ssh.connection())
    assert "PULUMI_COMMAND_STDOUT" in output
    assert stack.outputs("c")["stdout"] == "2"


def test_remote_failures_tell_why(stack: Stack, ssh: SshServer) -> None:
    """The error of a remote command has its exit status and output. A variable that the server
    refuses is named with the server's setting.
    """
    output = stack.up(
        """
        here = remote.ConnectionArgs(**HERE)
        remote.Command("status", connection=here, create="echo reason-out; exit 7")
        remote.Command("variable", connection=here, create="true", environment={"REFUSED": "x"})
        """,
        fails=True,
        HERE=ssh.connection(),
    )
    for said in ("status 7", "reason-out", "REFUSED", "AcceptEnv"):
        assert said in output
    assert stack.names() == set()


def test_another_host_key_is_refused_after_retries(stack: Stack, ssh: SshServer) -> None:
    """A host with another key gets no login. The plugin retries first, though no retry can help."""
    output = stack.up(
        'remote.Command("key", connection=remote.ConnectionArgs(**OTHER), create="echo > ran")',
        fails=True,
        OTHER=ssh.connection(host_key=ssh.key("other.pub"), dial_error_limit=1),
    )
    assert "Dial 1/1 failed: retrying" in output
    assert "after 1 failed attempts: ssh: handshake failed: ssh: host key mismatch" in output
    assert "session opened" not in ssh.log.read_text()
    assert "Accepted publickey" not in ssh.log.read_text()


def test_pinned_rsa_host_key_is_asked_for_with_sha1(stack: Stack, ssh: SshServer) -> None:
    """A pinned RSA key does not work: the plugin asks for a signature with SHA-1, which servers of
    today refuse. An ed25519 or ECDSA key works.
    """
    output = stack.up(
        'remote.Command("c", connection=remote.ConnectionArgs(**HERE), create="true")',
        fails=True,
        HERE=ssh.connection(host_key=ssh.key("host_rsa.pub"), dial_error_limit=0),
    )
    assert "no common algorithm for host key" in output


def test_locked_key_and_jump_host_work(stack: Stack, ssh: SshServer) -> None:
    """A private key with a password works, and so does a jump host."""
    locked = ssh.connection(private_key=ssh.key("locked"), private_key_password="open-up")
    stack.up(
        """
        jump = remote.ProxyConnectionArgs(**HERE)
        for name, connection in {
            "locked": remote.ConnectionArgs(**LOCKED),
            "jumped": remote.ConnectionArgs(**HERE, proxy=jump),
        }.items():
            remote.Command(name, connection=connection, create="echo $SSH_CONNECTION")
        """,
        HERE=ssh.connection(),
        LOCKED=locked,
    )
    for name in ("locked", "jumped"):
        assert str(ssh.port) in stack.outputs(name)["stdout"]


def test_dead_agent_is_an_error_beside_a_private_key(stack: Stack, ssh: SshServer) -> None:
    """A variable SSH_AUTH_SOCK that leads to no agent fails every remote command, even one with a
    private key.
    """
    program = 'remote.Command("c", connection=remote.ConnectionArgs(**HERE), create="echo in")'
    nobody = str(stack.folder / "nobody")
    stack.environment["SSH_AUTH_SOCK"] = nobody
    assert f"dial unix {nobody}" in stack.up(program, fails=True, HERE=ssh.connection())
    assert "Accepted publickey" not in ssh.log.read_text()


def test_dialling_gives_up_or_waits_for_ever(stack: Stack, stopped_ssh: SshServer) -> None:
    """The plugin gives up after `dial_error_limit` failed connections, and with -1 it tries until
    the host answers.
    """
    ssh = stopped_ssh
    program = 'remote.Command("c", connection=remote.ConnectionArgs(**HERE), create="echo up")'
    output = stack.up(program, fails=True, HERE=ssh.connection())
    assert "Dial 2/2 failed: retrying" in output
    assert "after 2 failed attempts" in output
    assert "connection refused" in output
    stack.program(program, HERE=ssh.connection(dial_error_limit=-1))
    process = stack.start("up", "--yes")
    read_until(process, "Dial 3/inf failed: retrying")
    ssh.start()
    output = finish(process)
    assert process.returncode == 0, output
    assert stack.outputs("c")["stdout"] == "up"


def test_cancelling_ends_the_dialling(stack: Stack, stopped_ssh: SshServer) -> None:
    """Ctrl-C ends a plugin that tries to connect."""
    program = 'remote.Command("c", connection=remote.ConnectionArgs(**HERE), create="echo up")'
    stack.program(program, HERE=stopped_ssh.connection(dial_error_limit=-1))
    process = stack.start("up", "--yes")
    read_until(process, "Dial 1/inf failed: retrying")
    process.send_signal(signal.SIGINT)
    output = finish(process)
    assert process.returncode != 0, output
    assert stack.names() == set()


def test_cancelling_does_not_end_a_remote_command(stack: Stack, ssh: SshServer) -> None:
    """After Ctrl-C, a remote command runs to its end. The engine waits for it, and has it in the
    state afterwards.
    """
    stack.program(
        """
        remote.Command("c", connection=remote.ConnectionArgs(**HERE),
                       create=f"echo begun; until test -e {GO}; do sleep 0.1; done; echo done")
        """,
        HERE=ssh.connection(),
        GO=str(stack.go),
    )
    process = stack.start("up", "--yes")
    read_until(process, "begun")
    process.send_signal(signal.SIGINT)
    seen = read_until(process, "^C received; cancelling")
    stack.go.touch()
    output = seen + finish(process)
    assert process.returncode != 0, output
    assert stack.outputs("c")["stdout"] == "begun\ndone"


def test_line_of_64_kib_hangs_a_remote_command(stack: Stack, ssh: SshServer) -> None:
    """A remote command that prints a line of 64 KiB never ends, as a local one
    (test_line_of_64_kib_hangs_its_command).
    """
    stack.program(
        """
        long = remote.Command("long", connection=remote.ConnectionArgs(**HERE),
                              create=f"printf %070000d 0; echo; touch {GO}")
        local.Command("next", create="echo never >> $LOG",
                      opts=pulumi.ResourceOptions(depends_on=[long]))
        """
        + BESIDE,
        HERE=ssh.connection(),
        GO=str(stack.go),
    )
    process = stack.start("up", "--yes")
    wait_for(lambda: "beside-3" in stack.logged(), "the commands beside have run")
    process.send_signal(signal.SIGINT)
    read_until(process, "^C received; cancelling")
    process.send_signal(signal.SIGINT)
    output = finish(process)
    assert process.returncode != 0, output
    assert "never" not in stack.logged()
    assert "long" not in stack.names()


def test_connections_of_commands_stay_open(stack: Stack, ssh: SshServer) -> None:
    """The connection of a command stays open until the plugin ends, and that of a copy does not. So
    many commands at once can reach the server's limit MaxStartups.
    """
    stack.up(
        """
        here = remote.ConnectionArgs(**HERE)
        before = [remote.CopyToRemote("copy", connection=here, source=pulumi.StringAsset("a"),
                                      remote_path=COPY)]
        for n in range(2):
            before = [remote.Command(f"c{n}", connection=here, create="true",
                                     opts=pulumi.ResourceOptions(depends_on=before))]
        local.Command("then", create=f"ss -Htn state established dport = :{HERE['port']}",
                      opts=pulumi.ResourceOptions(depends_on=before))
        """,
        HERE=ssh.connection(),
        COPY=str(stack.folder / "copy"),
    )
    assert len(stack.outputs("then")["stdout"].splitlines()) == 2


def test_connection_is_a_secret_with_its_defaults(stack: Stack, ssh: SshServer) -> None:
    """A connection is encrypted in the state, with its default limits."""
    connection = ssh.connection()
    del connection["dial_error_limit"]
    stack.up(
        'remote.Command("c", connection=remote.ConnectionArgs(**HERE), create="true")',
        HERE=connection,
    )
    assert "ciphertext" in stack.outputs("c")["connection"]
    assert "PRIVATE KEY" not in stack.state_text()
    exported = json.loads(stack.run("stack", "export", "--show-secrets"))
    (plain,) = [
        json.loads(resource["outputs"]["connection"]["plaintext"])
        for resource in exported["deployment"]["resources"]
        if resource["type"] == "command:remote:Command"
    ]
    assert (plain["dialErrorLimit"], plain["perDialTimeout"]) == (10, 15)
