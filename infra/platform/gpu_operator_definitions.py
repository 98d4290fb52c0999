"""The CustomResourceDefinitions that the GPU Operator's chart brings. Pure.

Helm leaves them in the cluster. Other operators of NVIDIA have theirs in the same API groups, such
as `nimservices.apps.nvidia.com`, so a group does not say whose a definition is.
"""

from infra.settings.gpu_regime import chart_version

OF_ALL_CHARTS = (
    "clusterpolicies.nvidia.com",
    "nvidiadrivers.nvidia.com",
    # of the node feature discovery, a chart inside the chart
    "nodefeatures.nfd.k8s-sigs.io",
    "nodefeaturegroups.nfd.k8s-sigs.io",
    "nodefeaturerules.nfd.k8s-sigs.io",
)
# The last two are also those of NVIDIA's driver for dynamic resource allocation, which has a chart
# of its own.
SINCE_26_7 = (
    "gpuclusters.nvidia.com",
    "computedomains.resource.nvidia.com",
    "computedomaincliques.resource.nvidia.com",
)
FIRST_WITH_MORE = (26, 7, 0)


def chart_definitions(version: str) -> tuple[str, ...]:
    """The names of the definitions.

    Args:
        version: of the chart, such as `v26.3.3`.
    """
    chart = chart_version(version)
    assert chart is not None
    return (*OF_ALL_CHARTS, *(SINCE_26_7 if chart >= FIRST_WITH_MORE else ()))
