"""The record of a run as the cluster keeps it, for tests of commands that need no cluster."""

from datetime import UTC, datetime, timedelta

from cli.stack_outputs import RunPlace
from infra.kube.api_server.access import Access
from infra.kube.record import Record
from infra.kube.workload import Workload

NOW = datetime(2026, 11, 22, 7, 0, tzinfo=UTC)
RECORD = Record(
    owner="11111111-2222-3333-4444-555555555555",
    stack="organization/disttrain/dev",
    workload=Workload("batch/v1", "Job", "train-singlepod"),
    revision="abc",
    gpus=3,
    gpus_total=4,
    suspend={"spec": {"suspend": True}},
    resume={"spec": {"suspend": None}},
    over=("Complete", "Failed"),
    grace_seconds=600,
    request="1",
    since=NOW - timedelta(hours=1),
    namespace="disttrain",
)
PLACE = RunPlace(
    access=Access(kubeconfig="{}"),
    namespace=RECORD.namespace,
    owner=RECORD.owner,
    image="image",
    run_path="/data/runs/dev",
    workload="train-singlepod",
    claim="data",
)
