"""The choices of the setting `topology`."""

from infra.multi_pod import MultiPodTraining
from infra.single_pod import SinglePodTraining

TOPOLOGIES = {"single-pod": SinglePodTraining, "multi-pod": MultiPodTraining}
