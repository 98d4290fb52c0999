"""A platform that installs controllers: what it registers, in which order, and what it refuses."""

import json
import tarfile
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from infra.controllers import CONTROLLERS
from infra.controllers.kind import PinnedChart
from infra.kube.api_server.findings import Findings
from infra.kube.controllers.claim_controller import refusal
from infra.kube.controllers.controller import parse_controller
from infra.kube.objects import Json
from infra.kube.runs.pods_look import RunPods
from infra.platform.controllers import as_job, known
from infra.preflight import Installed
from tests.unit.airgap.stocked import stock
from tests.unit.settings.reading import platform
from tests.unit.settings.reading import refusal as refused_settings
from tests.unit.stacks import deploy

JOBSET = CONTROLLERS["jobset"]
CHARTS = [name for name, kind in CONTROLLERS.items() if not kind.files]
EVERY_CHART = pytest.mark.parametrize("name", CHARTS)


def chart(folder: Path, name: str = "jobset", version: str = JOBSET.version) -> Path:
    """A chart that has nothing but its description."""
    made = folder / name
    made.mkdir(exist_ok=True)
    (made / "Chart.yaml").write_text(yaml.safe_dump({"name": name, "version": version}))
    return made


def setting_of(name: str) -> dict[str, object]:
    """The setting by which a platform installs it."""
    if chosen := CONTROLLERS[name].chosen_by:
        return {chosen[0]: chosen[1]}
    return {"controllers": [name]}


@EVERY_CHART
def test_every_chart_is_named_by_its_digest(name: str) -> None:
    source = CONTROLLERS[name].source
    assert isinstance(source, PinnedChart)
    assert source.pinned.startswith("oci://")
    assert len(source.digest.removeprefix("sha256:")) == 64


@pytest.mark.parametrize("name", list(CONTROLLERS))
def test_groups_of_a_controller_are_those_of_its_definitions(name: str) -> None:
    kind = CONTROLLERS[name]
    assert kind.definitions
    groups = {definition.partition(".")[2] for definition in kind.definitions}
    assert groups == {group.partition("/")[0] for group in kind.groups}


@EVERY_CHART
def test_release_is_the_pinned_chart_between_its_tasks(tmp_path: Path, name: str) -> None:
    """Claimed first; what Helm leaves goes after it; last it has to answer."""
    kind = CONTROLLERS[name]
    made = deploy("sandbox", tmp_path, {**setting_of(name), "topology": "none"})
    roles = ("claim", "namespace", "remains", "release", "open")
    names = [resource.name for resource in made.resources]
    places = [names.index(f"controller-{name}-{role}") for role in roles]
    assert places == sorted(places)
    release = made.one(f"controller-{name}-release").inputs
    assert isinstance(kind.source, PinnedChart)
    assert (release["chart"], release["version"]) == (kind.source.pinned, kind.version)
    assert release["namespace"] == kind.namespace
    owner = made.one(f"controller-{name}-namespace").inputs["metadata"]["labels"]
    job = json.loads(made.one(f"controller-{name}-open").inputs["stdin"])
    assert owner["disttrain.dev/owner"] == job["owner"]
    assert job["controller"]["definitions"] == list(kind.definitions)
    guard = json.loads(made.one("destroy-guard-look").inputs["stdin"])
    assert [each["name"] for each in guard["controllers"]] == [name]


def test_guard_of_an_own_k3s_does_not_ask_who_uses_its_controllers(tmp_path: Path) -> None:
    """They go with the cluster; and a platform without controllers has the inputs that it had."""
    own = deploy("dev", tmp_path, {"controllers": ["jobset"]})
    assert "controllers" not in json.loads(own.one("destroy-guard-look").inputs["stdin"])
    without = deploy("sandbox", tmp_path)
    assert "controllers" not in json.loads(without.one("destroy-guard-look").inputs["stdin"])


def test_queue_and_run_come_after_the_controllers_that_they_need(tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "controllers": ["kueue", "jobset"],
        "queues": {"name": "gpus"},
        "queue": "gpus",
        "topology": "jobset",
    }
    asked: list[tuple[RunPods, Installed]] = []

    def ask(_: object, __: object, ___: object, pods: RunPods, comes: Installed) -> Findings:
        asked.append((pods, comes))
        return Findings()

    with patch("tests.unit.stacks.ANSWER", ask):
        made = deploy("sandbox", tmp_path, settings)
    ((pods, comes),) = asked
    assert pods.groups_come == ("jobset.x-k8s.io", "kueue.x-k8s.io")
    assert [each.name for each in comes.controllers] == ["jobset", "kueue"]
    names = [resource.name for resource in made.resources]
    order = (
        "controller-jobset-open",
        "controller-kueue-claim",
        "controller-kueue-open",
        "queues-claim",
        "training-job-set",
    )
    places = [names.index(name) for name in order]
    assert places == sorted(places)


def test_chart_of_a_path_or_a_digest_takes_the_place_of_the_pinned_one(tmp_path: Path) -> None:
    path = chart(tmp_path)
    changes = {"controllers": ["jobset"], "controllerCharts": {"jobset": str(path)}}
    (found,) = platform(changes).controllers
    assert found.chart == str(path)
    address = "oci://registry.example/charts/jobset@sha256:" + 64 * "0"
    changes = {"controllers": ["jobset"], "controllerCharts": {"jobset": address}}
    assert platform(changes).controllers[0].chart == address


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"controllers": ["jobsets"]},
            "controllers[0]: 'jobsets' cannot be used: this program installs no controller of that "
            "name. Set one of jobset, trainer, training-operator, mpi-operator, volcano, lws, "
            "kueue (did you mean jobset?)",
        ),
        (
            {"controllers": ["kube-prometheus-stack"]},
            "controllers[0]: 'kube-prometheus-stack' cannot be used: another setting stands for "
            "it. Take it out of the list, and set monitoring: 'install'",
        ),
        (
            {"controllerCharts": {"kube-prometheus-stack": "/nowhere"}},
            "kube-prometheus-stack is not among controllers. Set monitoring: 'install'",
        ),
        (
            {"controllers": ["kueue", "kueue"]},
            "controllers[1]: 'kueue' cannot be used: it is in the list twice. Take one",
        ),
        ({"controllers": "jobset"}, "controllers: 'jobset' cannot be used: it is a single value"),
        (
            {"controllerCharts": {"jobset": "/nowhere"}},
            "controllerCharts.jobset: '/nowhere' cannot be used: jobset is not among controllers. "
            "Add jobset to controllers",
        ),
        (
            {"controllers": ["jobset"], "controllerCharts": {"jobset": "/nowhere"}},
            "controllerCharts.jobset: '/nowhere' cannot be used: no chart can be read there",
        ),
        (
            {"controllers": ["jobset"], "controllerCharts": {"jobset": "oci://r.example/c:0.12.0"}},
            "it is not the address of a chart in a registry with its digest",
        ),
        (
            {"controllers": ["jobset"], "namespace": "jobset-system"},
            "namespace: 'jobset-system' cannot be used: it is that of the controller jobset",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused_with_a_way_out(
    changes: dict[str, object], said: str
) -> None:
    assert said in refused_settings(changes)


@pytest.mark.parametrize("login", ["me:hunter7", "me:hun/ter7", "hunter7"])
@pytest.mark.parametrize("controllers", [["jobset"], []])
def test_login_in_an_address_is_not_shown(login: str, controllers: list[str]) -> None:
    """The digest of the address, which begins with an @ too, stays in the message."""
    digest = f"@sha256:{64 * '0'}"
    address = f"oci://{login}@registry.example/charts/jobset{digest}"
    changes = {"controllers": controllers, "controllerCharts": {"jobset": address}}
    said = refused_settings(changes)
    assert f"'oci://[secret]@registry.example/charts/jobset{digest}' cannot be used" in said
    assert "ter7" not in said


def test_broken_packed_chart_is_refused(tmp_path: Path) -> None:
    """A download that broke off gives no traceback, but a message that names the setting."""
    path = tmp_path / "jobset.tgz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(chart(tmp_path), "jobset")
    path.write_bytes(path.read_bytes()[:-40])
    said = refused_settings({"controllers": ["jobset"], "controllerCharts": {"jobset": str(path)}})
    assert f"controllerCharts.jobset: '{path}' cannot be used: no chart can be read there" in said


def test_chart_of_another_version_is_refused(tmp_path: Path) -> None:
    path = chart(tmp_path, version="0.11.0")
    said = refused_settings({"controllers": ["jobset"], "controllerCharts": {"jobset": str(path)}})
    assert "the chart there is jobset 0.11.0, and this program knows jobset 0.12.0" in said


def _namespace(owner: str, stack: str = "") -> Json:
    labels = {"disttrain.dev/owner": owner, "disttrain.dev/stack": stack} if owner else {}
    return {"metadata": {"name": "jobset-system", "labels": labels}}


def test_controller_that_is_there_is_refused_unless_it_is_ours() -> None:
    controller = known(JOBSET)
    definition: Json = {"metadata": {"name": JOBSET.definitions[0]}}
    assert refusal(controller, None, [], "me") == ""
    assert refusal(controller, _namespace("me"), [definition], "me") == ""
    said = refusal(controller, _namespace(""), [], "me")
    assert "already (namespace jobset-system), and this stack has not installed it" in said
    said = refusal(controller, None, [definition], "me")
    assert "(CustomResourceDefinition jobsets.jobset.x-k8s.io), and this stack has not" in said
    said = refusal(controller, _namespace("them", "dev"), [definition], "me")
    assert "stack dev has installed it, so it is left as it is. Take jobset out of" in said


def test_controller_of_an_older_checkout_can_be_destroyed() -> None:
    """What `destroy` runs was recorded by the `up` before it, whose jobs had fewer fields."""
    job = {name: as_job(JOBSET)[name] for name in ("name", "title", "namespace", "definitions")}
    found = parse_controller(job)
    assert (found.name, found.definitions) == ("jobset", JOBSET.definitions)
    assert found.setting == "controllers: 'jobset'"
    for kind in CONTROLLERS.values():
        assert parse_controller(json.loads(json.dumps(as_job(kind)))) == known(kind)


def test_controllers_by_chart_have_the_jobs_that_they_had() -> None:
    """Another job would run all tasks of a platform anew that an older checkout has brought."""
    fields = {"name", "title", "namespace", "definitions", "setting", "way_out", "awaited"}
    more = {name: as_job(CONTROLLERS[name]).keys() - fields for name in CHARTS}
    assert {name for name in CHARTS if more[name]} == {"kube-prometheus-stack"}
    assert more["kube-prometheus-stack"] == {"leaves"}


def test_prometheus_of_others_is_left_and_can_be_used() -> None:
    """The words are those of the setting by which it would have come."""
    kind = CONTROLLERS["kube-prometheus-stack"]
    said = refusal(known(kind), None, [{"metadata": {"name": kind.definitions[0]}}], "me")
    assert said.startswith(
        "monitoring: 'install' cannot be used: the Prometheus operator is in the"
    )
    assert said.endswith("Set monitoring to existing: the runs are shown by the one that is there")


def test_prometheus_without_internet_needs_its_chart(tmp_path: Path) -> None:
    reason = "monitoring: 'install' cannot be used: the folder of the setting bundle has neither"
    assert reason in refused_settings({"monitoring": "install", "bundle": str(stock(tmp_path))})
