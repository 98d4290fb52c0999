"""Names that carry content, computed before anything is made. Pure."""

from dataclasses import dataclass

from infra.manifests.config_map import config_map_name
from infra.manifests.dataset_job import dataset_revision
from infra.manifests.training_pod import training_revision
from infra.run_settings import dataset_only
from infra.settings import Settings


@dataclass(frozen=True)
class Revisions:
    """Names of the ConfigMaps, and the hashes that tell one workload from another."""

    run_config: str
    dataset_config: str
    training: str
    dataset: str


def revisions(settings: Settings) -> Revisions:
    """The names for these settings."""
    run_config = config_map_name("run", settings.run.to_mapping())
    dataset_config = config_map_name("dataset", dataset_only(settings.run))
    return Revisions(
        run_config=run_config,
        dataset_config=dataset_config,
        training=training_revision(settings, run_config),
        dataset=dataset_revision(settings, dataset_config),
    )
