"""Makes time series with and without faults for `promtool test rules`, a value for each minute."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.monitoring.rules import rule_file
from sandbox.toolchain import tool_folder
from sandbox.tools.services import PROMETHEUS_SERVER
from trainer.watch.slow import Cause

LABELS = {"namespace": "disttrain", "run": "dev", "job": "disttrain/pods"}
HOUR = 60  # minutes


def series(name: str, node: int = 0, **labels: str) -> str:
    """Return the name and labels of a series of the run `dev`, as Prometheus writes them."""
    own = {"node_rank": str(node), "instance": f"10.0.0.{node}:9464"}
    pairs = [f'{key}="{value}"' for key, value in {**LABELS, **own, **labels}.items()]
    return f"{name}{{{','.join(pairs)}}}"


WATCH = 'namespace="disttrain",pod="disttrain-node-health-x",condition="false"'
WATCH_NOT_READY = f"kube_pod_status_ready{{{WATCH}}}"


def queue(name: str, **labels: str) -> str:
    """Return the name and labels of a series of Kueue, as version 0.19 writes them."""
    pairs = {"cluster_queue": "gpus", "replica_role": "leader", **labels}
    return f"kueue_{name}{{{','.join(f'{key}={json.dumps(pairs[key])}' for key in pairs)}}}"


def clean_hour() -> dict[str, str]:
    """Return the series of a run of two pods: 100 steps a minute, a mirrored save every 500 steps.

    The values are those at each minute. promtool's clock begins at 0.
    """
    saved = [minute * 100 // 500 * 500 for minute in range(HOUR + 1)]
    mirrored = [0, *saved[:-1]]  # Each save is mirrored a minute later.
    pending = 'kube_pod_status_phase{namespace="disttrain",pod="train-multipod-0",phase="Pending"}'
    found = {
        series("disttrain_step"): f"0+100x{HOUR}",
        series("disttrain_last_step_timestamp_seconds"): f"0+60x{HOUR}",
        # Some updates of float16 are skipped: four in a row, and a single one.
        series("disttrain_loss"): "10-0.1x20 NaN NaN NaN NaN 7.5-0.1x20 NaN 5.4-0.1x13",
        series("disttrain_checkpoint_step"): " ".join(map(str, saved)),
        series("disttrain_checkpoint_interval_steps"): f"500x{HOUR}",
        series("disttrain_mirror_step"): " ".join(map(str, mirrored)),
        series("disttrain_mirror_problem"): f"0 1 0x{HOUR - 2}",  # one failed try
        series("disttrain_volume_free_bytes"): f"50-0.1x{HOUR}",
        series("disttrain_volume_size_bytes"): f"100x{HOUR}",
        pending: f"1 1 1 0x{HOUR - 3}",
        WATCH_NOT_READY: f"1 1 0x{HOUR - 2}",
        'kube_pod_info{namespace="disttrain",pod="disttrain-node-health-x",node="a"}': f"1x{HOUR}",
        queue("pending_workloads", status="active"): f"1x{HOUR}",  # behind the active run
        queue("admitted_active_workloads"): f"0 0 1x{HOUR - 2}",
    }
    for node in (0, 1):
        found |= {
            series("disttrain_info", node): f"1x{HOUR}",
            series("disttrain_start_timestamp_seconds", node): f"0x{HOUR}",
            series("disttrain_ranks_configured", node): f"2x{HOUR}",
            series("disttrain_ranks_alive", node): f"0 0 1x{HOUR - 2}",
            series("disttrain_rank_seconds_total", node, state="training"): f"0 0 0+60x{HOUR - 2}",
            series("disttrain_divergences_total", node): f"0x{HOUR}",
            series("disttrain_finished", node): f"0x{HOUR}",
            series("disttrain_failed", node): f"0x{HOUR}",
            series("disttrain_transport_as_asked", node, asked="ib"): f"_ _ 1x{HOUR - 2}",
            f'up{{job="disttrain/pods",instance="10.0.0.{node}:9464"}}': f"1 0 1x{HOUR - 2}",
        }
    return found


def fault(name: str, values: str, node: int = 0, **labels: str) -> dict[str, str]:
    """Return a series whose values differ from those of a clean hour."""
    return {series(name, node, **labels): values}


PENDING_POD = 'kube_pod_status_phase{namespace="disttrain",pod="train-multipod-1",phase="Pending"}'
# For each alert, the series that differ from a clean hour. Only this alert may fire.
FAULTS: Mapping[str, Mapping[str, str]] = {
    "DisttrainRankLost": fault("disttrain_ranks_alive", f"1x30 0x{HOUR - 31}", 1),
    "DisttrainNoStep": fault("disttrain_last_step_timestamp_seconds", f"0+60x30 1800x{HOUR - 31}"),
    "DisttrainSilent": {'up{job="disttrain/pods",instance="10.0.0.1:9464"}': f"1x30 0x{HOUR - 31}"},
    "DisttrainDiverged": fault("disttrain_divergences_total", f"0x50 1x{HOUR - 51}"),
    "DisttrainLossNotANumber": fault("disttrain_loss", " ".join(["3"] * 30 + ["NaN"] * 31)),
    "DisttrainLossSpike": fault("disttrain_loss", f"3x50 9x{HOUR - 51}"),
    "DisttrainRunFailed": fault("disttrain_failed", "0x55 1 _x4", 1),  # The pod is gone then.
    "DisttrainCheckpointOld": {
        **fault("disttrain_checkpoint_step", f"500x{HOUR}"),
        **fault("disttrain_mirror_step", f"500x{HOUR}"),
    },
    "DisttrainMirrorBehind": fault("disttrain_mirror_problem", f"0x30 1x{HOUR - 31}"),
    "DisttrainVolumeFull": fault("disttrain_volume_free_bytes", f"50-1x{HOUR}"),
    "DisttrainSlowRank": fault(
        "disttrain_slow_rank_ratio", f"_x29 2x{HOUR - 30}", rank="1", cause=str(Cause.DATA)
    ),
    "DisttrainThrottled": fault(
        "disttrain_slow_rank_ratio", f"_x29 2x{HOUR - 30}", rank="1", cause=str(Cause.THROTTLED)
    ),
    "DisttrainTransportFallback": fault(
        "disttrain_transport_as_asked", f"1x30 0x{HOUR - 31}", 1, asked="ib"
    ),
    "DisttrainPodPending": {PENDING_POD: f"1x{HOUR}"},
    "DisttrainNodeUnhealthy": {WATCH_NOT_READY: f"0x30 1x{HOUR - 31}"},
    "DisttrainQueueStuck": {queue("admitted_active_workloads"): f"1x30 0x{HOUR - 31}"},
}


def run_promtool(folder: Path, hour: Mapping[str, str], firing: Mapping[str, int]) -> str:
    """Ask promtool whether exactly `firing` alerts (numbers by name) fire after the hour.

    Returns:
        What promtool found instead; empty if it agrees.
    """
    (folder / "rules.json").write_text(json.dumps(rule_file()))  # JSON is YAML
    expected = [
        {"labels": f'{{alertname="{name}"}}', "value": count} for name, count in firing.items()
    ]
    questions: list[dict[str, Any]] = [
        {
            "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": f"{HOUR}m",
            "exp_samples": expected,
        }
    ]
    if not firing:  # Then no alert may fire at any earlier time either.
        questions.append(
            {
                "expr": f'count_over_time(ALERTS{{alertstate="firing"}}[{HOUR}m])',
                "eval_time": f"{HOUR}m",
                "exp_samples": [],
            }
        )
    return ask_promtool(folder, [(hour, questions)])


def ask_promtool(
    folder: Path, hours: Sequence[tuple[Mapping[str, str], list[dict[str, Any]]]]
) -> str:
    """Return what promtool complains about in the questions about each hour; empty if nothing."""
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": key, "values": value} for key, value in hour.items()],
            "promql_expr_test": questions,
        }
        for hour, questions in hours
    ]
    content = {"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": tests}
    (folder / "test.json").write_text(json.dumps(content))
    return promtool(folder, "test", "rules", "test.json")


def promtool(folder: Path, *words: str) -> str:
    """Return what promtool prints if it fails; empty if it succeeds."""
    program = str(tool_folder(PROMETHEUS_SERVER) / "promtool")
    done = subprocess.run(
        [program, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr if done.returncode else ""
