"""The alert rules for Prometheus. All functions are pure.

Each alert says what to do first, because its receiver may have nothing but its text. It names its
section in docs/monitoring.md, which says more. It has no link, because the page has no fixed
address. Tests check that the section exists, that each rule fires for its fault, and that no rule
fires in an hour without a fault.
"""

from dataclasses import dataclass
from typing import Any, Literal

RUNBOOK = "docs/monitoring.md"
BY_RUN = "by (namespace, run)"
CPU_QUOTA = "its CPU quota"  # one of the causes in trainer/watch/slow.py
# The names of training pods. The name of somebody else's pod may also begin with `train-`, and the
# same Prometheus may see it.
KINDS = "singlepod|multipod|indexed|jobset|lws|mpijob|pytorchjob|trainjob|volcano"
TRAINING_PODS = f"train-({KINDS})-.+"
# A finished run makes no steps and needs no ranks.
UNLESS_FINISHED = f"unless on (namespace, run) max {BY_RUN} (disttrain_finished) == 1"
# A user's own program may not report its steps. A run that reports them has a step as soon as
# its ranks train. So a run whose ranks train without a step counts as one that reports none.
UNLESS_STEPS_ARE_UNKNOWN = (
    "unless on (namespace, run) "
    f'(max {BY_RUN} (disttrain_rank_seconds_total{{state="training"}}) > 0 '
    f"unless on (namespace, run) max {BY_RUN} "
    "(last_over_time(disttrain_last_step_timestamp_seconds[1h])))"
)


@dataclass(frozen=True)
class Rule:
    """One alert.

    Args:
        name: the name of the alert, which is also the headline of its section in the runbook.
        expression: the PromQL expression, which has a result while something is wrong. The labels
            `namespace` and `run` of the result identify the run.
        minutes: how long the expression has to have a result before the alert fires.
        severity: critical if the run stands still or loses work now; warning if it soon may.
        summary: one sentence for people, with `{{ $labels.run }}` for the run's name.
        first_steps: what to look at and what to do, in one or two sentences.
        is_of_cluster: whether the result has no label `namespace`, because it is about an object of
            the whole cluster.
    """

    name: str
    expression: str
    minutes: int
    severity: Literal["critical", "warning"]
    summary: str
    first_steps: str
    is_of_cluster: bool = False

    @property
    def runbook(self) -> str:
        """The page and section of the documentation, as a path in the folder of this project."""
        return f"{RUNBOOK}#{self.name.lower()}"

    @property
    def description(self) -> str:
        """What to do, and where the documentation says more."""
        return f"{self.first_steps} More: {self.runbook} in the folder of disttrain."


RULES = (
    Rule(
        "DisttrainRankLost",
        f"sum {BY_RUN} (disttrain_ranks_alive) < max {BY_RUN} (disttrain_ranks_configured) "
        f"{UNLESS_FINISHED}",
        5,
        "critical",
        "Run {{ $labels.run }} has trained without all of its ranks for 5 minutes.",
        "`./disttrain status` names the missing pod and what it waits for; `./disttrain logs "
        "--first-error` says why ranks have ended.",
    ),
    Rule(
        "DisttrainNoStep",
        f"time() - max {BY_RUN} "
        '({__name__=~"disttrain_last_step_timestamp_seconds|disttrain_start_timestamp_seconds"}) '
        f"> 900 {UNLESS_FINISHED} {UNLESS_STEPS_ARE_UNKNOWN}",
        1,
        "critical",
        "Run {{ $labels.run }} has logged no step for 15 minutes.",
        "`./disttrain status` says whether a rank hangs, a pod waits for the others, or an "
        "evaluation takes long. After `kubectl delete pod POD` the pod saves if it can, and "
        "a new one continues.",
    ),
    Rule(
        "DisttrainSilent",
        "max by (namespace, run, instance, job) (last_over_time(disttrain_info[1h])) "
        "and on (instance, job) (up == 0) "
        # Prometheus may list the pod of a run for a while after the run has ended.
        f"unless on (namespace, run) max {BY_RUN} "
        '(last_over_time({__name__=~"disttrain_finished|disttrain_failed"}[1h])) == 1',
        3,
        "critical",
        "A pod of run {{ $labels.run }} runs and has not answered Prometheus for 3 minutes.",
        "Its volume hangs, its node is lost, or a NetworkPolicy blocks the connection: look "
        "at `./disttrain status`, at `kubectl describe pod POD`, and at the storage of its "
        "node.",
    ),
    Rule(
        "DisttrainDiverged",
        f"max {BY_RUN} (increase(disttrain_divergences_total[15m])) > 0",
        0,
        "critical",
        "The loss or the gradients of run {{ $labels.run }} were not finite.",
        "The run continues once from its newest checkpoint; a second divergence at the same "
        "step ends it. Lower run.train.learning_rate, raise run.train.warmup_steps, or look "
        "at the data of that step.",
    ),
    Rule(
        "DisttrainLossNotANumber",
        "disttrain_loss != disttrain_loss",
        10,
        "warning",
        "The logged loss of run {{ $labels.run }} has been no number for 10 minutes.",
        "With float16 set run.train.dtype to bfloat16, or lower run.train.learning_rate. A "
        "program of your own is not ended for it: stop it with `./disttrain stop` if it does "
        "not recover.",
    ),
    Rule(
        "DisttrainLossSpike",
        # The loss of a user's own program may be negative, and then the factor 1.5 has no meaning.
        "disttrain_loss > 1.5 * (avg_over_time(disttrain_loss[30m]) > 0)",
        5,
        "warning",
        "The loss of run {{ $labels.run }} is half as high again as in the last 30 minutes.",
        "Many spikes disappear by themselves. If this one stays, stop the run with "
        "`./disttrain stop`, lower run.train.learning_rate, and `pulumi up`.",
    ),
    Rule(
        "DisttrainRunFailed",
        f"max {BY_RUN} (max_over_time(disttrain_failed[10m])) == 1",
        0,
        "critical",
        "Run {{ $labels.run }} was given up.",
        "`./disttrain logs --first-error` says why. Mend the cause, then run `pulumi up` or "
        "`./disttrain resume`.",
    ),
    Rule(
        "DisttrainCheckpointOld",
        "disttrain_step - disttrain_checkpoint_step > 2 * disttrain_checkpoint_interval_steps",
        5,
        "warning",
        "Run {{ $labels.run }} is two checkpoint intervals or more after its newest checkpoint.",
        "A kill would now lose the steps in between. Look for `checkpoint` in `./disttrain "
        "logs`, and at the free space and the speed of the volume.",
    ),
    Rule(
        "DisttrainMirrorBehind",
        "disttrain_mirror_problem == 1 or on (namespace, run) "
        "disttrain_checkpoint_step - disttrain_mirror_step "
        "> 2 * disttrain_checkpoint_interval_steps",
        10,
        "warning",
        "The newest checkpoints of run {{ $labels.run }} are not in its mirror.",
        "The training continues. The lines `[mirror]` in `./disttrain logs` say whether the "
        "store does not answer, refuses the credentials, or is too slow.",
    ),
    Rule(
        "DisttrainVolumeFull",
        "disttrain_volume_free_bytes / disttrain_volume_size_bytes < 0.1",
        5,
        "warning",
        "The volume of run {{ $labels.run }} has less than a tenth of its room left.",
        "`./disttrain runs` lists what is there and deletes runs; run.checkpoint.keep_last "
        "keeps fewer checkpoints.",
    ),
    Rule(
        "DisttrainSlowRank",
        f'disttrain_slow_rank_ratio{{cause!="{CPU_QUOTA}"}}',
        5,
        "warning",
        "Run {{ $labels.run }} waits for {{ if $labels.rank }}rank {{ $labels.rank }}"
        "{{ else }}no single rank{{ end }}: {{ $labels.cause }}.",
        "`./disttrain status` shows since when; docs/stragglers.md says how each cause is found.",
    ),
    Rule(
        "DisttrainThrottled",
        f'disttrain_slow_rank_ratio{{cause="{CPU_QUOTA}"}}',
        5,
        "warning",
        "{{ if $labels.rank }}Rank {{ $labels.rank }}{{ else }}A pod{{ end }} of run "
        "{{ $labels.run }} stands still at its CPU quota.",
        "Raise the CPU limit of its pod, or remove the LimitRange of the namespace that sets one.",
    ),
    Rule(
        "DisttrainTransportFallback",
        f"min {BY_RUN} (disttrain_transport_as_asked) == 0 {UNLESS_FINISHED}",
        0,
        "warning",
        "The ranks of run {{ $labels.run }} do not use the transport that its network profile "
        "asks for; ./disttrain status says the likely causes.",
        "The run may be many times slower until the cause is mended and the pods are started anew.",
    ),
    Rule(
        "DisttrainPodPending",
        "max by (namespace, pod) "
        f'(kube_pod_status_phase{{phase="Pending", pod=~"{TRAINING_PODS}"}}) == 1',
        15,
        "warning",
        "Training pod {{ $labels.pod }} has waited for a place for 15 minutes.",
        "`kubectl -n {{ $labels.namespace }} describe pod {{ $labels.pod }}` says what the "
        "nodes lack; `./disttrain status` shows which run holds the GPUs.",
    ),
    Rule(
        "DisttrainNodeUnhealthy",
        "max by (namespace, pod) "
        '(kube_pod_status_ready{condition="false", pod=~"disttrain-node-health-.+"} == 1) '
        # `max` removes duplicates, because a cluster may have more than one kube-state-metrics.
        "* on (namespace, pod) group_left (node) max by (namespace, pod, node) (kube_pod_info)",
        5,
        "warning",
        "Something is wrong with machine {{ $labels.node }}; ./disttrain status says what.",
        "docs/operations.md says what each problem means and what to do with the machine.",
    ),
    Rule(
        "DisttrainQueueStuck",
        # It is no fault if a run waits while another one runs.
        "sum by (cluster_queue) (kueue_pending_workloads) > 0 unless on (cluster_queue) "
        "sum by (cluster_queue) (kueue_admitted_active_workloads) > 0",
        15,
        "warning",
        "Work waits in queue {{ $labels.cluster_queue }}, which has admitted nothing else.",
        "`./disttrain status` shows what a run waits for, and `kubectl describe clusterqueue "
        "{{ $labels.cluster_queue }}` why it admits nothing.",
        is_of_cluster=True,
    ),
)


def rule_file(namespace: str = "") -> dict[str, Any]:
    """The content of a rule file of Prometheus, which is also the spec of a PrometheusRule.

    Args:
        namespace: the label `namespace` of alerts about objects of the whole cluster. With the
            Prometheus operator, an alert reaches only the receivers of the namespace in this label,
            so without the label it would reach nobody.
    """
    rules = [
        {
            "alert": rule.name,
            "expr": rule.expression,
            **({"for": f"{rule.minutes}m"} if rule.minutes else {}),
            "labels": {
                "severity": rule.severity,
                **({"namespace": namespace} if namespace and rule.is_of_cluster else {}),
            },
            "annotations": {"summary": rule.summary, "description": rule.description},
        }
        for rule in RULES
    ]
    return {"groups": [{"name": "disttrain", "rules": rules}]}
