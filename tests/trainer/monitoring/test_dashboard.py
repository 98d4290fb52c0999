"""Every panel and rule, asked of a real Prometheus that reads a real training of three pods.

Two stand-ins give what only GPUs have: the text of DCGM's exporter in `dcgm.txt`, with the names of
its default counters, and our own endpoint over a record that has an MFU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.monitoring.dashboard import dashboard
from infra.monitoring.panels import PANELS, Panel
from infra.monitoring.rules import RULES
from tests.trainer.lab import Lab, free_port, last_step, wait_for
from tests.trainer.monitoring.pod import NAMESPACE, start_pod
from tests.trainer.monitoring.prometheus import Prometheus
from trainer.monitoring.endpoint import Endpoint
from trainer.monitoring.families import FAMILIES, MFU, MIRROR_PROBLEM, MIRROR_STEP, SLOW_RANK
from trainer.monitoring.run_files import samples_of_files
from trainer.monitoring.text import as_text

NODES = 3
NOT_OF_EVERY_RUN = {MFU.name, MIRROR_STEP.name, MIRROR_PROBLEM.name, SLOW_RANK.name}


@pytest.fixture(scope="module")
def prometheus(module_lab: Lab) -> Iterator[Prometheus]:
    server = Prometheus(module_lab.root / "prometheus")
    yield server
    server.close()


@pytest.fixture(scope="module")
def scraped(module_lab: Lab, prometheus: Prometheus) -> Iterator[Prometheus]:
    """Yield the Prometheus while a run of three pods trains."""
    config = module_lab.config(
        train__max_steps=1_000_000, eval__interval=20, checkpoint__interval=20
    )
    port = free_port()
    for node in range(NODES):
        start_pod(module_lab, prometheus, config, node, NODES, port)
    pages = [(Path(__file__).parent / "dcgm.txt").read_text(), page_of_gpu_run(module_lab)]
    stand_ins = [Endpoint(free_port(), lambda text=page: text, print) for page in pages]
    for number, stand_in in enumerate(stand_ins):
        labels = {"namespace": "gpu-operator", "pod": f"nvidia-dcgm-exporter-{number}"}
        assert stand_in.port is not None
        prometheus.add_target(stand_in.port, labels if number == 0 else NAMESPACE)
    wait_for("checkpoints", lambda: last_step(config) > 60, 120, module_lab)
    yield prometheus
    for stand_in in stand_ins:
        stand_in.close()


def page_of_gpu_run(lab: Lab) -> str:
    """Return the metrics of a run whose record has an MFU."""
    config = lab.config(run_name="on-gpus")
    config.run_dir.mkdir(parents=True)
    (config.run_dir / "metrics.jsonl").write_text('{"step": 10, "loss": 3.1, "mfu": 0.41}\n')
    return as_text(samples_of_files(config), {"run": "on-gpus", "node_rank": "0"})


@pytest.mark.parametrize("panel", PANELS, ids=[panel.title for panel in PANELS])
def test_each_panel_has_something_to_show(panel: Panel, scraped: Prometheus) -> None:
    """Each query of each panel has a result."""
    for expression, _ in panel.queries:
        about_gpus = "DCGM" in expression or MFU.name in expression
        run = ".*" if about_gpus else "tiny"  # the real one
        filled = expression.replace("$namespace", ".*").replace("$run", run)
        filled = filled.replace("$__rate_interval", "1m")
        assert scraped.wait_for(filled), expression


def test_panel_of_an_unknown_metric_would_be_seen(scraped: Prometheus) -> None:
    """A query of a metric that does not exist has no result, so a panel with a wrong name would
    fail.
    """
    assert scraped.wait_for("disttrain_step")
    assert scraped.wait_for('disttrain_steps{run=~".*"}', seconds=3) == []


def test_a_real_run_offers_every_metric_that_it_can(module_lab: Lab, scraped: Prometheus) -> None:
    """A run without a mirror and GPUs offers all other documented metrics, and no further ones.

    The metric of a slow rank may be there, as other work on the machine may slow one down.
    """
    assert scraped.wait_for('disttrain_validation_loss{run="tiny"}')
    assert scraped.wait_for("disttrain_checkpoint_timestamp_seconds")
    wanted = {family.name for family in FAMILIES} - NOT_OF_EVERY_RUN

    def differ() -> set[str]:
        found = scraped.ask('{__name__=~"disttrain_.+", run="tiny"}')
        return wanted ^ ({each["metric"]["__name__"] for each in found} - {SLOW_RANK.name})

    # On a busy machine Prometheus may miss a reading, and a query then finds less for a while.
    wait_for(f"exactly the metrics {sorted(wanted)}", lambda: not differ(), 60, module_lab)


def test_names_types_and_help_are_as_prometheus_wants_them(scraped: Prometheus) -> None:
    assert scraped.wait_for("disttrain_step")
    known = scraped.get("metadata")
    offered = [family for family in FAMILIES if family.name in known]
    assert {family.name for family in FAMILIES if family not in offered} <= NOT_OF_EVERY_RUN
    for family in offered:
        (metadata,) = known[family.name]
        assert metadata == {"type": family.kind.value, "help": family.help, "unit": ""}


def test_rules_are_evaluated_without_errors_and_none_fires(
    module_lab: Lab, scraped: Prometheus
) -> None:
    assert scraped.wait_for("disttrain_step")

    def healths() -> dict[str, str]:
        (group,) = scraped.get("rules")["groups"]
        return {rule["name"]: rule["health"] for rule in group["rules"]}

    wait_for("the rules", lambda: "unknown" not in healths().values(), 60, module_lab)
    assert healths() == {rule.name: "ok" for rule in RULES}
    assert scraped.alerts() == []


@pytest.mark.slow
def test_finished_pod_waits_until_prometheus_has_seen_it(
    module_lab: Lab, prometheus: Prometheus
) -> None:
    """The pod of a finished run waits until Prometheus has read its end. A Job's pod ends with its
    training, which may be between two readings.

    The last checkpoint of this run takes so long that two readings before it show that somebody
    reads regularly.
    """
    config = module_lab.config(run_name="short", train__max_steps=20)
    pod = start_pod(module_lab, prometheus, config, 0, 1, free_port(), slow_disk_seconds=2)
    assert prometheus.wait_for('count_over_time(disttrain_info{run="short"}[5m]) >= 2')
    assert pod.wait(120) == 0
    assert prometheus.wait_for('max_over_time(disttrain_finished{run="short"}[5m]) == 1')


def test_dashboard_holds_each_panel_once_and_none_overlap() -> None:
    panels = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    assert [panel["title"] for panel in panels] == [panel.title for panel in PANELS]
    taken = set[tuple[int, int]]()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + dx, place["y"] + dy)
            for dx in range(place["w"])
            for dy in range(place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert json.loads(json.dumps(dashboard())) == dashboard()
