"""How many processes train together, and in how many pods."""

from dataclasses import dataclass


@dataclass(frozen=True)
class World:
    """The number of pods, processes (ranks) and GPUs of a run; `gpus_per_pod` is 0 on CPU."""

    pods: int
    ranks_per_pod: int
    gpus_per_pod: int

    @property
    def world_size(self) -> int:
        """The number of ranks in all pods together."""
        return self.pods * self.ranks_per_pod

    @property
    def gpus(self) -> int:
        """The number of GPUs in all pods together; 0 on CPU."""
        return self.pods * self.gpus_per_pod
