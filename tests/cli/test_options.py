"""The options of the doctor, and how the doctor finds a builder of images and certificates."""

import argparse
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from cli.doctor.build_facts import build_lines, builders_on_node
from cli.doctor.command import add_arguments, examine, judge, make_plan
from cli.doctor.gather import host_program
from cli.facts import Facts, parse_facts
from infra.image.dependencies import dependencies_are_built
from infra.node.doctor_plan import Plan
from infra.node.expectations import Expectations
from sandbox.venvs import PROJECT

AWKWARD = 'it\'s a "folder" $HOME'
# Stands in for kubectl: it answers only if it is given a kubeconfig that exists.
KUBECTL = """#!/bin/sh
while [ $# -gt 0 ]; do
  [ "$1" != --kubeconfig ] || file=$2
  shift
done
[ -f "$file" ] || { echo "no such kubeconfig: $file" >&2; exit 1; }
echo ok
"""


def plan_of(*words: str) -> Plan:
    """Return the doctor's plan for these words of a command line."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return make_plan(parser.parse_args(words))


def program(path: Path, text: str) -> Path:
    """Write an executable script and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_any_path_of_a_kubeconfig_reaches_kubectl(tmp_path: Path) -> None:
    """The doctor passes any path of a kubeconfig to kubectl unchanged. Otherwise an apostrophe in
    the path would end the shell's word, and the rest would run as a command.
    """
    kubeconfig = tmp_path / AWKWARD / "kubeconfig"
    kubectl = program(tmp_path / AWKWARD / "kubectl", KUBECTL)
    kubeconfig.write_text("apiVersion: v1\n")
    kubeconfig.chmod(0o600)
    plan = plan_of("--kubeconfig", str(kubeconfig), "--kubectl", shlex.quote(str(kubectl)))
    results = {result.id: result for result in examine(plan).results}
    assert (results["api-server"].status, results["api-server"].evidence) == ("ok", "ready")
    assert results["kubeconfig"].status == "ok"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kubeconfig", "k", "--kubectl", "sh -c 'x"), '--kubectl: "sh -c \'x" is not a shell'),
        (("--kubeconfig", "k", "--kubectl", " "), "--kubectl: '' cannot be used: it is empty"),
        (("--gpus", "-1"), "--gpus: -1 cannot be used: it is below 0"),
        (("--gpus", "3", "--pods", "2"), "--pods: 2 cannot be used: 3 GPUs"),
        (("--pods", "0"), "--pods: 0 cannot be used"),
        (("--data-root", "data"), "--data-root: 'data' cannot be used: it is no absolute path"),
        (("--host", "ssh://a b@c"), "--host: 'ssh://a b@c' cannot be used: it is no address"),
        (("--host", "ssh://-oX=1@c"), "--host: 'ssh://-oX=1@c' cannot be used: it is no address"),
        (
            ("--stack", "dev", "--host", "ssh://a@b"),
            "--host: 'ssh://a@b' cannot be used: with --st",
        ),
        (("--stack", "dev", "--gpus", "4"), "--gpus: 4 cannot be used: with --stack, the settings"),
        (("--stack", "dev", "--no-internet"), "--no-internet cannot be used: with --stack"),
    ],
)
def test_option_that_cannot_be_is_named_with_its_value(words: list[str], message: str) -> None:
    """An option whose value cannot be used is refused with its name, the value and the reason."""
    with pytest.raises(ValueError, match=r"^--") as refusal:
        plan_of(*words)
    assert message in str(refusal.value)


def test_plan_survives_its_way_as_json() -> None:
    """A plan that is written as JSON and read again is the same plan."""
    plan = Plan(expect=Expectations(tolerated_taints=("a", "b"), pods=2, ranks=2))
    assert Plan.from_json(plan.to_json()) == plan


def test_exceptions_of_the_shell_are_not_taken_for_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without `--stack`, the doctor tries the proxy that the shell's variables name, and does not
    compare NO_PROXY of this shell with the networks of a cluster. `pulumi up` computes another
    NO_PROXY for the machine.
    """
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "localhost,.example")
    plan = plan_of("--gpus", "3")
    assert plan.expect.has_proxy
    (found,) = (each for each in judge(plan, Facts()) if each.id == "no-proxy")
    assert (found.status, found.evidence) == ("not applicable", "`pulumi up` computes it")


# --- which builder of images works ---


def builder(folder: Path, name: str, status: int = 0) -> None:
    """Write a stand-in of the program `name`, which ends with this status."""
    program(folder / name, f"#!/bin/sh\nexit {status}\n")


@pytest.fixture
def only_these_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make an empty folder the only one on PATH, with an empty cache of the project; return the
    folder.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("DISTTRAIN_CACHE", str(tmp_path / "cache"))
    return folder


def test_machine_that_builds_here_is_asked_for_its_builder(only_these_programs: Path) -> None:
    """If the image is built on this machine, the doctor names a builder that works here, and not a
    docker client whose engine does not answer.
    """
    expect = Expectations(image_builder="auto", image_deps="0123")
    assert build_lines(expect) == ["image_builder=none"]
    builder(only_these_programs, "docker", status=1)  # a client without its engine
    assert build_lines(expect) == ["image_builder=none"]
    builder(only_these_programs, "buildah")
    assert build_lines(expect) == ["image_builder=buildah"]


def test_builder_is_not_missed_where_the_build_is_in_the_cache(only_these_programs: Path) -> None:
    """The doctor demands no builder on a machine whose cache has the dependencies of exactly this
    image.
    """
    cache = Path(os.environ["DISTTRAIN_CACHE"])
    (cache / "images" / "deps-0123-amd64").mkdir(parents=True)
    assert dependencies_are_built("0123", cache)
    assert build_lines(Expectations(image_builder="auto", image_deps="0123")) == [
        "image_builder=cached"
    ]
    assert build_lines(Expectations(image_builder="auto", image_deps="4567")) == [
        "image_builder=none"
    ]


def test_builder_on_the_node_is_looked_for_by_the_script_there(tmp_path: Path) -> None:
    """If the image is built on the node, the doctor's script names a builder that works on the
    node, and nothing is looked for on this machine.
    """
    expect = Expectations(image_builder="auto", image_build_on="node", gpus=0, internet=False)
    assert build_lines(expect) == []
    assert builders_on_node(expect) == ("docker", "podman", "buildah")
    for name in ("docker", "podman"):
        builder(tmp_path, name, status=1)
    builder(tmp_path, "buildah")
    assert _facts_of_the_script(tmp_path, expect).one("image_builder") == "buildah"
    builder(tmp_path, "buildah", status=1)
    assert _facts_of_the_script(tmp_path, expect).one("image_builder") == "none"


def test_own_certificates_add_to_those_of_the_host(tmp_path: Path) -> None:
    """The doctor's script gives curl the host's certificates and those of `caBundle`. On hosts
    whose curl trusts nothing beside its `--cacert`, `caBundle` alone would make every public host
    fail.
    """
    shown = tmp_path / "shown"
    program(tmp_path / "curl", f'#!/bin/sh\ncat "$2" >{shown}\n')  # --cacert is its first option
    expect = Expectations(gpus=0, internet=False, https_proxy="http://p:3128", ca_bundle="ours")
    _facts_of_the_script(tmp_path, expect)
    begin, _, end = shown.read_text().rpartition("\n\n")
    assert begin == Path("/etc/ssl/certs/ca-certificates.crt").read_text().rstrip("\n")
    assert end == "ours\n"


def _facts_of_the_script(folder: Path, expect: Expectations) -> Facts:
    """Return the facts that the doctor's script prints, with the programs in `folder` first on
    PATH.
    """
    done = subprocess.run(
        ["sh", "-s"],
        input=host_program(Plan(scope="host", expect=expect)),
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return parse_facts(done.stdout.splitlines())


def test_api_server_that_gives_no_answer_is_named_as_the_reason(tmp_path: Path) -> None:
    """When `timeout` ends a kubectl that waits, the doctor gives as the reason that the API server
    gave no answer. The kubectl itself has then written nothing that could be shown.
    """
    silent = program(tmp_path / "kubectl", "#!/bin/sh\ncase $* in *readyz*) ;; *) sleep 99 ;; esac")
    variables = {"KUBECTL": str(silent), "NAMESPACE": "disttrain", "PROBE_SECONDS": "1"}
    script = ["sh", str(PROJECT / "cli" / "scripts" / "facts-cluster.sh")]
    done = subprocess.run(script, env=os.environ | variables, check=True, capture_output=True)
    facts = parse_facts(done.stdout.decode().splitlines())
    reason = "the API server gave no answer in 1 s"
    assert (facts.unseen["nodes"], facts.unseen["cluster_policy"]) == (reason, reason)
