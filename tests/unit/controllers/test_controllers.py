"""A platform that installs controllers: what it registers, in which order, and what it refuses."""

import json
import tarfile
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml

from infra.cluster_check import Installed
from infra.controllers import CONTROLLERS
from infra.controllers.kind import PinnedChart
from infra.kube.api_server.findings import Findings
from infra.kube.controllers.claim_controller import refusal
from infra.kube.controllers.controller import parse_controller
from infra.kube.objects import Json
from infra.kube.runs.pods_findings import RunPods
from infra.platform.controllers import controller_field, controller_for_tasks
from tests.unit.airgap.stocked import stock
from tests.unit.settings.reading import platform
from tests.unit.settings.reading import refusal as refused_settings
from tests.unit.stacks import deploy

JOBSET = CONTROLLERS["jobset"]
CHARTS = [name for name, kind in CONTROLLERS.items() if not kind.files]
EVERY_CHART = pytest.mark.parametrize("name", CHARTS)


def chart(folder: Path, name: str = "jobset", version: str = JOBSET.version) -> Path:
    """Make a chart that has only its description; return its folder."""
    made = folder / name
    made.mkdir(exist_ok=True)
    (made / "Chart.yaml").write_text(yaml.safe_dump({"name": name, "version": version}))
    return made


def setting_of(name: str) -> dict[str, object]:
    """Return the setting by which a platform installs the controller."""
    if chosen := CONTROLLERS[name].chosen_by:
        return {chosen[0]: chosen[1]}
    return {"controllers": [name]}


@EVERY_CHART
def test_every_chart_is_named_by_its_digest(name: str) -> None:
    """Each controller's chart is pinned by a digest."""
    source = CONTROLLERS[name].source
    assert isinstance(source, PinnedChart)
    assert source.pinned.startswith("oci://")
    assert len(source.digest.removeprefix("sha256:")) == 64


@pytest.mark.parametrize("name", list(CONTROLLERS))
def test_groups_of_a_controller_are_those_of_its_definitions(name: str) -> None:
    """The API groups of a controller are those of its definitions (CRDs)."""
    kind = CONTROLLERS[name]
    assert kind.definitions
    groups = {definition.partition(".")[2] for definition in kind.definitions}
    assert groups == {group.partition("/")[0] for group in kind.groups}


@EVERY_CHART
def test_release_is_the_pinned_chart_between_its_tasks(tmp_path: Path, name: str) -> None:
    """A controller is claimed first, then its chart is released, and at last it has to answer. At
    `destroy`, what Helm leaves is removed after the release. The guard of `destroy` knows the
    controller.
    """
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
    """The guard of `destroy` does not look at controllers in a k3s of this stack, which go with the
    cluster. A platform without controllers has the same input as before there were any.
    """
    own = deploy("dev", tmp_path, {"controllers": ["jobset"]})
    assert "controllers" not in json.loads(own.one("destroy-guard-look").inputs["stdin"])
    without = deploy("sandbox", tmp_path)
    assert "controllers" not in json.loads(without.one("destroy-guard-look").inputs["stdin"])


def test_queue_and_run_come_after_the_controllers_that_they_need(tmp_path: Path) -> None:
    """The queue and the run are made after the controllers that they need, and the check before
    `up` knows that these come.
    """
    settings: dict[str, object] = {
        "controllers": ["kueue", "jobset"],
        "queues": {"name": "gpus"},
        "queue": "gpus",
        "topology": "jobset",
    }
    asked: list[tuple[RunPods, Installed]] = []

    def ask(*given: object) -> Findings:
        _, _, _, pods, comes, _ = given
        assert isinstance(pods, RunPods)
        assert isinstance(comes, Installed)
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
    """`controllerCharts` replaces the pinned chart by a chart of this machine, or by one in a
    registry with its digest.
    """
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
    """Wrong settings of controllers are refused with what to do."""
    assert said in refused_settings(changes)


@pytest.mark.parametrize("login", ["me:hunter7", "me:hun/ter7", "hunter7"])
@pytest.mark.parametrize("controllers", [["jobset"], []])
def test_login_in_an_address_is_not_shown(login: str, controllers: list[str]) -> None:
    """A login in the address of a chart is not shown in the error. The digest of the address, which
    begins with an @ too, stays in it.
    """
    digest = f"@sha256:{64 * '0'}"
    address = f"oci://{login}@registry.example/charts/jobset{digest}"
    changes = {"controllers": controllers, "controllerCharts": {"jobset": address}}
    said = refused_settings(changes)
    assert f"'oci://[secret]@registry.example/charts/jobset{digest}' cannot be used" in said
    assert "ter7" not in said


def test_broken_packed_chart_is_refused(tmp_path: Path) -> None:
    """A packed chart whose download broke off is refused with a message that names the setting, and
    not with a traceback.
    """
    path = tmp_path / "jobset.tgz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(chart(tmp_path), "jobset")
    path.write_bytes(path.read_bytes()[:-40])
    said = refused_settings({"controllers": ["jobset"], "controllerCharts": {"jobset": str(path)}})
    assert f"controllerCharts.jobset: '{path}' cannot be used: no chart can be read there" in said


def test_chart_of_another_version_is_refused(tmp_path: Path) -> None:
    """A chart of another version than the one that this program knows is refused."""
    path = chart(tmp_path, version="0.11.0")
    said = refused_settings({"controllers": ["jobset"], "controllerCharts": {"jobset": str(path)}})
    assert "the chart there is jobset 0.11.0, and this program knows jobset 0.12.0" in said


def _namespace(owner: str, stack: str = "") -> Json:
    labels = {"disttrain.dev/owner": owner, "disttrain.dev/stack": stack} if owner else {}
    return {"metadata": {"name": "jobset-system", "labels": labels}}


def test_controller_that_is_there_is_refused_unless_it_is_ours() -> None:
    """A controller that is in the cluster already is refused unless this stack has installed it,
    and the error says who has.
    """
    controller = controller_for_tasks(JOBSET)
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
    """`destroy` reads jobs that an `up` of an older checkout has recorded, which have fewer
    fields.
    """
    job = {
        name: controller_field(JOBSET)[name]
        for name in ("name", "title", "namespace", "definitions")
    }
    found = parse_controller(job)
    assert (found.name, found.definitions) == ("jobset", JOBSET.definitions)
    assert found.setting == "controllers: 'jobset'"
    for kind in CONTROLLERS.values():
        assert parse_controller(
            json.loads(json.dumps(controller_field(kind)))
        ) == controller_for_tasks(kind)


def test_controllers_by_chart_have_the_jobs_that_they_had() -> None:
    """The jobs of controllers that are installed by a chart have no further fields than before.
    Another job would run all tasks of a platform that an older checkout has made.
    """
    fields = {"name", "title", "namespace", "definitions", "setting", "way_out", "awaited"}
    more = {name: controller_field(CONTROLLERS[name]).keys() - fields for name in CHARTS}
    assert {name for name in CHARTS if more[name]} == {"kube-prometheus-stack"}
    assert more["kube-prometheus-stack"] == {"leaves"}


def test_prometheus_of_others_is_left_and_can_be_used() -> None:
    """A Prometheus operator of others is refused in the words of the setting `monitoring`, and the
    error says how to use it.
    """
    kind = CONTROLLERS["kube-prometheus-stack"]
    said = refusal(
        controller_for_tasks(kind), None, [{"metadata": {"name": kind.definitions[0]}}], "me"
    )
    assert said.startswith(
        "monitoring: 'install' cannot be used: the Prometheus operator is in the"
    )
    assert said.endswith("Set monitoring to existing: the runs are shown by the one that is there")


def test_prometheus_without_internet_needs_its_chart(tmp_path: Path) -> None:
    """With a bundle, `monitoring: install` is refused unless its chart is given."""
    reason = "monitoring: 'install' cannot be used: the folder of the setting bundle has neither"
    assert reason in refused_settings({"monitoring": "install", "bundle": str(stock(tmp_path))})
