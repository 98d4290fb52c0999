"""Makes the arguments of the component GpuOperator from the settings of a platform."""

import pulumi

from infra.airgap.needs import CHART
from infra.platform.gpu_operator import GpuOperatorArgs
from infra.platform.gpu_operator_values import chart_values, driver_proxy_secret, mig_config
from infra.platform.kubectl import Kubectl
from infra.settings import GpuOperatorSettings, PlatformSettings
from infra.settings.gpu_chart import ChartSource


def gpu_operator_args(
    operator: GpuOperatorSettings,
    settings: PlatformSettings,
    kubectl: Kubectl,
    owner: pulumi.Input[str],
    generation: pulumi.Input[str],
) -> GpuOperatorArgs:
    """Make the arguments of the component.

    Only the driver's container gets the proxies and the authorities, so they are left out if the
    operator does not install the driver.

    Args:
        operator: the operator's settings.
        settings: the settings of the platform.
        kubectl: how the scripts call kubectl for the cluster.
        owner: identifies the stack's state.
        generation: a text that changes when the cluster has become another one.
    """
    proxy = settings.proxy
    packed = settings.bundle.file(CHART) if settings.bundle else None
    return GpuOperatorArgs(
        kubectl=kubectl,
        stack=settings.stack,
        owner=owner,
        generation=generation,
        chart=ChartSource(str(packed), "") if packed else operator.chart,
        version=operator.version,
        values=chart_values(operator, settings),
        ca_bundle=proxy.ca_bundle if operator.driver else "",
        proxy_secret=driver_proxy_secret(settings) if operator.driver else None,
        mig_config=mig_config(operator.sharing.mig_profile),
        gpus=settings.devices.gpus,
        timeout_seconds=operator.timeout_seconds,
    )
