"""The project's program, as far as the cluster: what a host gets before anything runs on it."""

import pulumi

from infra.bundled import check_bundle, send_bundle
from infra.cluster import Cluster
from infra.runner import host_runner
from infra.settings import load_settings
from infra.storage import DataFolder

settings = load_settings()
runner = host_runner(settings.host)
bundle = check_bundle(settings)
bundle += send_bundle(settings, runner, [*bundle])
folder = DataFolder("data-root", settings, runner, bundle)
cluster = Cluster("cluster", settings, runner, [*bundle, folder])
pulumi.export("kubeconfig", cluster.kubeconfig)
