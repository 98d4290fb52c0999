"""The project's program, as far as the cluster: what a host gets before anything runs on it."""

import pulumi

from infra.cluster import Cluster
from infra.runner import host_runner
from infra.settings import load_settings
from infra.storage import DataFolder

settings = load_settings()
runner = host_runner(settings.host)
folder = DataFolder("data-root", settings, runner, [])
cluster = Cluster("cluster", settings, runner, [folder.command])
pulumi.export("kubeconfig", cluster.kubeconfig)
