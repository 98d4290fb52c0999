"""The doctor's scripts run for real: on this machine, in a network namespace with faults, over SSH,
and through a proxy.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cli.ask_host import HOST_SECONDS, SCRIPTS
from cli.check import SMI_SECONDS, Result
from cli.doctor.command import examine
from cli.doctor.gather import clock_skew, gather, host_program
from cli.facts import NotSeenError, parse_facts
from cli.report import COULD_NOT_CHECK, Report
from infra.image.parts import BASE
from infra.node.doctor_plan import Machine, Plan, SshTarget
from infra.node.expectations import Expectations
from tests.cli.servers import (
    PASSWORD,
    USER,
    Sshd,
    free_port,
    make_certificate,
    make_key,
    proxy,
    sshd,
    web_server,
)

PROJECT = Path(__file__).parents[3]
HERE = Plan(scope="host", expect=Expectations(gpus=0, internet=False))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


def by_id(report: Report) -> dict[str, Result]:
    """Return the results of a report by the id of their check; fail if the host was not reached."""
    assert report.reached, report.text()
    return {result.id: result for result in report.results}


def run_in_new_network(setup: str, plan: Plan) -> str:
    """Return what the host script prints in a network namespace where `setup` was run before."""
    done = subprocess.run(
        [
            "unshare",
            "--net",
            "sh",
            "-c",
            f'{setup}\nsh -s\n[ -z "${{listener:-}}" ] || kill $listener',
        ],
        input=host_program(plan),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def test_this_machine_is_looked_at_completely() -> None:
    """On this machine no check is left as `not checked`."""
    report = examine(HERE)
    assert by_id(report)["gpu-device"].status == "not applicable"
    left = [result.id for result in report.results if result.status == "not checked"]
    assert left == []


def test_folder_for_sent_images_has_room() -> None:
    """The free space is that of the folder to which the image is sent. /tmp is often a small file
    system in memory, on which nothing depends.
    """
    evidence = by_id(examine(HERE))["disk-tmp"].evidence
    assert evidence.startswith(f"{Path(BASE).parent}: ")


def test_gpu_checks_say_what_the_bus_of_this_machine_says() -> None:
    """The doctor counts exactly the NVIDIA GPUs that this machine's PCI bus has."""
    devices = Path("/sys/bus/pci/devices").glob("*/vendor")
    nvidia = [d for d in devices if d.read_text().strip() == "0x10de"]
    gpus = [d for d in nvidia if (d.parent / "class").read_text().startswith("0x03")]
    plan = replace(HERE, expect=replace(HERE.expect, gpus=1000))
    result = by_id(examine(plan))["gpu-device"]
    assert result.status == "error"
    seen = f"there are {len(gpus)} NVIDIA GPUs" if gpus else "there is no NVIDIA GPU"
    assert result.evidence == f"{seen} on the PCI bus; 1000 asked for"


def test_machine_is_looked_at_with_many_authorities() -> None:
    """A `caBundle` of more than 128 KiB hinders no check. As a variable, a text of that size would
    keep every program from starting, and the doctor would look for ever.
    """
    plan = replace(HERE, expect=replace(HERE.expect, ca_bundle="a line\n" * 30_000))
    result = by_id(examine(plan))
    assert [each.id for each in result.values() if each.status == "not checked"] == []


@pytest.mark.parametrize("path", ["/none/of/these", "/etc/passwd/x", "none"])
def test_nearest_folder_is_found_without_programs(path: str) -> None:
    """The script finds the nearest folder that exists without starting a program. Otherwise it
    would look for ever where `dirname` cannot be started.
    """
    script = (SCRIPTS / "facts-host.sh").read_text()
    function = script[script.index("nearest_folder() {") : script.index("# disk.NAME=")]
    done = subprocess.run(
        ["sh", "-c", f'PATH=/none\n{function}\nnearest_folder "$1"', "sh", path],
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    wanted = {"/none/of/these": "/", "/etc/passwd/x": "/etc", "none": "."}
    assert done.stdout.strip() == wanted[path]


def test_looking_leaves_no_file_behind(tmp_path: Path) -> None:
    """The doctor's script removes its temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    plan = replace(
        HERE, expect=replace(HERE.expect, https_proxy="http://127.0.0.1:9", ca_bundle="x")
    )
    done = subprocess.run(
        ["sh", "-s"],
        input=host_program(plan),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert "host_done=yes" in done.stdout
    assert list(folder.iterdir()) == []


SMI = """\
#!/bin/sh
case $* in
*name,mig*) printf 'NVIDIA A100, Disabled\\nNVIDIA A100, Disabled\\n' ;;
*ecc.errors*) printf '0, 0\\n1, 4\\n' ;;
*remapped*) printf '00000000:17:00.0, 0, 0\\n00000000:65:00.0, 1, 0\\n' ;;
esac
"""
KERNEL_LOG = """\
[  100.123456] nvidia: loading out-of-tree module taints kernel.
[ 2000.000001] NVRM: Xid (PCI:0000:17:00): 13, pid=4242, name=python, Graphics Exception
[ 2000.000002] NVRM: Xid (PCI:0000:17:00): 13, pid=4242, name=python, Graphics Exception
[ 3000.000001] NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.
"""


@pytest.mark.parametrize("readable", [True, False])
def test_errors_of_gpus_come_from_the_driver_and_the_kernel(tmp_path: Path, readable: bool) -> None:
    """The doctor reads GPU errors from nvidia-smi and the kernel's log, and says so if the log
    cannot be read. Stand-ins for nvidia-smi and dmesg print what the real ones do.
    """
    log = tmp_path / "kernel.log"
    log.write_text(KERNEL_LOG)
    dmesg = f"#!/bin/sh\ncat {log}\n" if readable else "#!/bin/sh\nexit 1\n"
    for name, text in (("nvidia-smi", SMI), ("dmesg", dmesg)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["sh", "-s"],
        input=host_program(HERE),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    facts = parse_facts(done.stdout.splitlines())
    assert facts.all("gpu_ecc") == ["0, 0", "1, 4"]
    assert facts.all("gpu_rows") == ["00000000:17:00.0, 0, 0", "00000000:65:00.0, 1, 0"]
    if readable:
        assert facts.all("xid") == ["PCI:0000:17:00|13|2", "PCI:0000:65:00|79|1"]
    else:
        with pytest.raises(NotSeenError, match="dmesg cannot read"):
            facts.all("xid")


def test_nvidia_smi_has_a_limit_of_its_own(tmp_path: Path) -> None:
    """Each call of nvidia-smi has its own, longer limit, because nvidia-smi may need many seconds.
    A stand-in for nvidia-smi notes the limit of each call.
    """
    asked = tmp_path / "asked"
    stand_in = SMI.replace("case $*", f"tr '\\0' ' ' </proc/$PPID/cmdline >>{asked}\ncase $*")
    (tmp_path / "nvidia-smi").write_text(stand_in)
    (tmp_path / "nvidia-smi").chmod(0o755)
    subprocess.run(
        ["sh", "-s"],
        input=host_program(HERE),
        stdout=subprocess.DEVNULL,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )
    assert asked.read_text().count(f"timeout -k 1 {SMI_SECONDS} nvidia-smi ") == 3
    assert HOST_SECONDS > 2 * SMI_SECONDS


LISTEN = f"""
ip link set lo up
{sys.executable} -m http.server 6443 >/dev/null 2>&1 &
listener=$!
until ss -ltn | grep -q :6443; do sleep 0.1; done"""


def test_taken_port_and_missing_route_are_seen_in_a_network_of_their_own() -> None:
    """The doctor sees a port that is taken, with the program that has it, and that there is no
    default route.
    """
    facts = run_in_new_network(LISTEN, HERE)
    assert "port.6443=taken python" in facts
    assert "port.10250=free" in facts
    assert "route=default" not in facts


def test_address_of_ipv6_alone_is_seen() -> None:
    """The doctor sees the address and the default route of a host that has IPv6 alone. With both
    kinds of addresses it takes the IPv4 address, as k3s does.
    """
    setup = """
ip link set lo up
ip link add out0 type bridge
ip link set out0 up
ip -6 address add fd00:4::4/64 dev out0 nodad
ip -6 route add default via fd00:4::1 dev out0"""
    facts = run_in_new_network(setup, HERE).splitlines()
    assert {"route=default out0", "device=out0", "node_ip=fd00:4::4"} <= {*facts}
    both = f"{setup}\nip address add 203.0.113.254/31 dev out0\nip route add default dev out0"
    assert "node_ip=203.0.113.254" in run_in_new_network(both, HERE).splitlines()


@pytest.mark.parametrize("broken", ["", "hidden"], ids=["whole", "cut"])
def test_answer_that_breaks_off_is_not_taken_for_a_healthy_host(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script's answer that breaks off counts as a host that was not reached, with exit code 2."""
    from cli.doctor import gather as module

    text = host_program(HERE)
    if broken:
        text = text.replace("fact host_done yes", "exit 3")
    monkeypatch.setattr(module, "host_program", lambda plan: text)  # pyright: ignore[reportUnknownLambdaType]
    report = examine(HERE)
    assert report.reached is not bool(broken)
    if broken:
        assert report.exit_code() == report.exit_code("error") == COULD_NOT_CHECK
        assert "not complete (status 3" in report.results[0].evidence


# --- over SSH ---


def ssh_plan(server: Sshd, **changes: object) -> Plan:
    """Return the plan of a look at this machine through the sshd, with changes of the SSH
    target.
    """
    key = server.identity.read_text()
    target = SshTarget("127.0.0.1", server.port, "root", key, host_key=server.host_key)
    changed = replace(target, **changes)  # pyright: ignore[reportArgumentType]
    return replace(HERE, ssh=changed)


def test_a_host_over_ssh_needs_one_connection_and_gives_the_same_facts(server: Sshd) -> None:
    """A look over SSH logs in once, and finds the same facts as a look at this machine itself."""
    before = server.logins()
    remote, here = gather(ssh_plan(server)).facts, gather(HERE).facts
    assert server.logins() == before + 1
    for name in ("os", "kernel", "MemTotal_kib", "module.overlay", "data_root"):
        assert remote.one(name) == here.one(name)
    assert set(remote.values) == set(here.values)


def test_a_jump_host_is_gone_through_with_its_own_pinned_key(server: Sshd, tmp_path: Path) -> None:
    """The doctor reaches a host through a jump host, and refuses a jump host whose key is not the
    pinned one.
    """
    before = server.logins()
    there = ssh_plan(server).ssh
    assert there
    plan = ssh_plan(server, jump=there)
    assert gather(plan).facts.get("host_done") == "yes"
    assert server.logins() == before + 2
    assert Plan.from_json(plan.to_json()) == plan
    stranger = replace(there, host="localhost", host_key=make_key(tmp_path / "other"))
    assert not examine(ssh_plan(server, jump=stranger)).reached
    assert server.logins() == before + 2


def test_a_changed_host_key_stops_before_anything_is_sent(server: Sshd, tmp_path: Path) -> None:
    """A host whose key is not the pinned one gets no login, and the finding says how to read the
    new key.
    """
    before = server.logins()
    report = examine(ssh_plan(server, host_key=make_key(tmp_path / "other")))
    assert server.logins() == before
    assert not report.reached
    (result,) = report.results
    assert (result.id, result.status) == ("connection", "error")
    assert result.evidence.endswith("the host's key is not the pinned one")
    assert "ssh-keyscan" in result.fix
    assert report.exit_code() == COULD_NOT_CHECK


def test_a_wrong_key_and_a_closed_port_are_named(server: Sshd, tmp_path: Path) -> None:
    """The connection's finding tells a refused key from a closed port, and names the setting of
    each.
    """
    make_key(tmp_path / "other")
    denied = examine(ssh_plan(server, private_key=(tmp_path / "other").read_text()))
    assert "Permission denied" in denied.results[0].evidence
    assert "sshPrivateKey" in denied.results[0].fix
    plan = ssh_plan(server)
    assert plan.ssh
    closed = examine(replace(plan, ssh=replace(plan.ssh, port=free_port())))
    assert "Connection refused" in closed.results[0].evidence
    assert "sshPort" in closed.results[0].fix


def test_machines_that_do_not_answer_are_each_named(server: Sshd) -> None:
    """Each machine that does not answer has a finding of its own. Nothing is said of the GPUs of
    all machines, which nobody has seen.
    """
    plan = ssh_plan(server)
    assert plan.ssh
    closed = replace(plan.ssh, port=free_port())
    several = replace(
        plan,
        machines=(Machine("gpu2", closed),),
        expect=replace(plan.expect, gpus=2, pods=2, ranks=2),
    )
    report = examine(several)
    silent = {(r.id, r.place) for r in report.results if r.id in ("connection", "gpus-of-all")}
    assert silent == {("connection", "gpu2")}
    assert report.reached
    report = examine(replace(several, ssh=closed))
    assert {(r.id, r.place) for r in report.results} == {
        ("connection", "127.0.0.1"),
        ("connection", "gpu2"),
    }
    assert report.exit_code() == COULD_NOT_CHECK


def test_further_machine_names_a_silent_first_one(server: Sshd) -> None:
    """The doctor of a further machine names the first machine if that one does not answer.
    Otherwise it would end with 2 and no reason.
    """
    plan = ssh_plan(server)
    assert plan.ssh
    closed = replace(plan.ssh, port=free_port())
    report = examine(replace(plan, ssh=closed, machines=(Machine("two", plan.ssh),), only="two"))
    assert report.exit_code() == COULD_NOT_CHECK
    (fault,) = (result for result in report.results if result.id == "connection")
    assert (fault.place, fault.status) == ("127.0.0.1", "error")
    assert "Connection refused" in fault.evidence


def test_a_dead_ssh_agent_is_named_where_the_host_is_reached_over_ssh(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An SSH agent that is gone or does not answer is an error for a host over SSH. The doctor
    itself does without an agent, but the commands of `pulumi up` do not.
    """

    def agent(plan: Plan) -> Result:
        return by_id(examine(plan))["ssh-agent"]

    path = tmp_path / "agent"
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    assert f"({path}: No such file or directory)" in agent(ssh_plan(server)).evidence
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        dead = agent(ssh_plan(server))
        assert (dead.status, dead.is_finding) == ("error", True)
        assert f"({path}: Connection refused)" in dead.evidence
        assert "unset SSH_AUTH_SOCK" in dead.fix
        assert agent(HERE).status == "not applicable"
        listener.listen()
        assert f"({path}: no answer in 3 s)" in agent(ssh_plan(server)).evidence
    path.unlink()
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE) as alive:
        assert alive.stdout
        alive.stdout.readline()  # the agent prints its socket once it listens
        assert agent(ssh_plan(server)).status == "ok"
        alive.terminate()
    monkeypatch.delenv("SSH_AUTH_SOCK")
    assert agent(ssh_plan(server)).status == "ok"


def test_without_a_pinned_key_the_known_hosts_of_the_user_decide(
    server: Sshd, tmp_path: Path
) -> None:
    """Without a pinned key, the doctor connects only to a host whose key is in the user's
    `known_hosts`.
    """
    plan = ssh_plan(server, host_key="")
    before = server.logins()
    unknown = examine(plan)
    assert "Host key verification failed" in unknown.results[0].evidence
    assert server.logins() == before
    home = Path.home() / ".ssh"
    home.mkdir(mode=0o700, exist_ok=True)
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {server.host_key}\n")
    done = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-euc", 'mount --bind "$1" "$2"; shift 2; exec "$@"'),
            *("sh", str(tmp_path), str(home)),
            *(sys.executable, "-m", "cli", "doctor", "--plan", "-", "--fail-on", "none"),
        ],
        input=plan.to_json(),
        capture_output=True,
        text=True,
        check=False,
        cwd=PROJECT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.logins() == before + 1


def test_command_line_gives_json_and_an_exit_code(server: Sshd) -> None:
    """`doctor --json` over SSH prints the report as JSON, with the same exit code as the
    process.
    """
    words = ["--host", f"ssh://root@127.0.0.1:{server.port}", "--identity", str(server.identity)]
    words += ["--host-key", server.host_key, "--gpus", "0", "--no-internet", "--host-only"]
    done = subprocess.run(
        [str(PROJECT / "disttrain"), "doctor", "--json", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    report = json.loads(done.stdout)
    assert done.returncode == report["exit_code"] in (0, 1), done.stderr
    assert report["host"] == f"ssh://root@127.0.0.1:{server.port}"
    assert len(report["checks"]) >= 25


def test_command_line_refuses_what_is_no_host() -> None:
    """An address with a password is refused, and the password is not printed."""
    done = subprocess.run(
        [str(PROJECT / "disttrain"), "doctor", "--host", "ssh://u:hunter2@h"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == COULD_NOT_CHECK
    assert "Give local or ssh://user@host:port" in done.stderr
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize(
    ("remote", "skew"), [(100, 0), (101, 0), (99, 0), (50, -49), (102, 0), (103, 1), (202, 100)]
)
def test_clock_skew_is_what_the_round_trip_cannot_explain(remote: int, skew: int) -> None:
    """The clock of a host differs by the seconds that the duration of the question cannot
    explain.
    """
    assert clock_skew(100.0, remote, 101.0) == skew


# --- by a proxy ---


def proxied(url: str, http_port: int, https_port: int, ca_bundle: str = "") -> dict[str, Result]:
    """Return the results of the checks of a proxy, for a look at this machine with this proxy."""
    expect = replace(
        HERE.expect,
        http_proxy=url,
        https_proxy=url,
        http_probe=f"http://127.0.0.1:{http_port}/",
        https_probe=f"https://127.0.0.1:{https_port}/",
        ca_bundle=ca_bundle,
        no_proxy="10.42.0.0/16,10.43.0.0/16,.svc,.cluster.local,127.0.0.1,localhost,0.0.0.0/0",
    )
    results = by_id(examine(replace(HERE, expect=expect)))
    assert "hunter2" not in str(results)
    names = ("proxy-reachable", "proxy-password", "proxy-certificate", "no-proxy")
    return {name: results[name] for name in names}


def findings(results: dict[str, Result]) -> list[str]:
    """Return the ids of the checks that found a fault."""
    return [result.id for result in results.values() if result.is_finding]


def test_each_fault_of_a_real_proxy_with_a_password_is_named(tmp_path: Path) -> None:
    """A real proxy is fine with the right password; a wrong or missing password, an unknown
    authority and a proxy that is down are told apart.
    """
    certificate = tmp_path / "certificate"
    authority = make_certificate(certificate)
    with web_server() as plain, web_server(certificate) as tls, proxy(tmp_path) as port:
        good = f"http://{USER}:{PASSWORD}@127.0.0.1:{port}"
        assert findings(proxied(good, plain, tls, authority)) == []
        assert findings(proxied(good, plain, tls)) == ["proxy-certificate"]
        none = proxied(f"http://127.0.0.1:{port}", plain, tls, authority)
        assert findings(none) == ["proxy-password"]
        assert "none is given (407)" in none["proxy-password"].evidence
        wrong = proxied(f"http://{USER}:wrong@127.0.0.1:{port}", plain, tls, authority)
        assert findings(wrong) == ["proxy-password"]
        assert "refuses the given one (401)" in wrong["proxy-password"].evidence
    down = proxied(good, 9, 9)
    assert findings(down) == ["proxy-reachable"]
    assert "nobody listens there" in down["proxy-reachable"].evidence
