"""The program that `pulumi up` runs: settings -> components -> outputs (docs/architecture.md)."""

import pulumi

from infra.cluster import Cluster
from infra.dataset import DatasetJob
from infra.gpu_operator import GpuOperator
from infra.host import prepare_host
from infra.kubectl import make_kubectl
from infra.namespace import Namespace
from infra.outputs import stack_outputs
from infra.proxy import ProxyConfig
from infra.revisions import revisions
from infra.run_config import RunConfigMap
from infra.runner import host_runner
from infra.settings import load_settings
from infra.storage import DataVolume
from infra.topologies import TOPOLOGIES
from infra.trainer_image import TrainerImage

settings = load_settings()
names = revisions(settings)
runner = host_runner(settings.host)
kubectl = make_kubectl(settings.cluster, settings.host, runner)
host = prepare_host(settings, runner)
cluster = Cluster("cluster", settings, runner, host)
inside = cluster.options
ready: list[pulumi.Resource] = [cluster]
if settings.gpu_operator:
    ready.append(GpuOperator("gpu-operator", settings.gpu_operator, settings, kubectl, inside))
image = TrainerImage("image", settings, [cluster])
namespace = Namespace("namespace", settings, kubectl, names, inside)
volume = DataVolume("data", settings, [namespace, *host], inside)
proxy = ProxyConfig("proxy", settings, [namespace], inside)
dataset = DatasetJob("dataset", settings, names, runner, [image, volume, proxy], inside)
run = RunConfigMap("run", settings, names, [namespace], inside)
make_training = TOPOLOGIES[settings.compute.topology]
training = make_training("training", settings, names, kubectl, [*ready, dataset, run], inside)

stack_outputs(settings, cluster, kubectl, namespace, training, image).export()
