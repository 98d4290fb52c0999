"""Knows the keys at the top of the values of the GPU Operator's chart.

Source: deployments/gpu-operator of NVIDIA/gpu-operator, at the tags from v24.9.1 to v26.7.0: the
keys in values.yaml, and those that only the templates read.
"""

from infra.settings.gpu_regime import Version

_OF_ALL_CHARTS = (
    *("ccManager", "cdi", "daemonsets", "dcgm", "dcgmExporter", "devicePlugin", "driver"),
    *("gdrcopy", "gds", "gfd", "hostPaths", "kataManager", "mig", "migManager", "nfd"),
    *("node-feature-discovery", "nodeStatusExporter", "operator", "platform", "psa"),
    *("sandboxDevicePlugin", "sandboxWorkloads", "toolkit", "validator", "vfioManager"),
    *("vgpuDeviceManager", "vgpuManager"),
    *("fullnameOverride", "nameOverride"),  # only in the templates
    "global",  # Helm has it for every chart.
)
# The keys that came later, by the first version that has them.
_LATER: dict[Version, tuple[str, ...]] = {
    (26, 3, 0): ("extraObjects", "kataSandboxDevicePlugin"),
    (26, 7, 0): ("clusterPolicy", "draDriver", "gpuCluster"),
}
_NEWEST_KNOWN: Version = (26, 7, 0)


def chart_keys(chart: Version) -> tuple[str, ...]:
    """Return the keys of a version of NVIDIA's chart; empty if the version is too new to know."""
    if chart > _NEWEST_KNOWN:
        return ()
    later = (key for first, keys in _LATER.items() if chart >= first for key in keys)
    return (*_OF_ALL_CHARTS, *later)
