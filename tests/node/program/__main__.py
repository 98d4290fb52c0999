"""The project's program, as far as the cluster: what a host gets before anything runs on it."""

import pulumi

from infra.cluster import Cluster
from infra.runner import host_runner
from infra.settings import load_settings

settings = load_settings()
cluster = Cluster("cluster", settings, host_runner(settings.host))
pulumi.export("kubeconfig", cluster.kubeconfig)
