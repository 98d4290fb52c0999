"""The name of the data set's Job."""

import re
from itertools import product

import pytest

from infra.run.dataset_job_name import dataset_job_name

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LONG = "team-nlp-experiment-with-a-long-name-for-seed-"
STACKS = ("dev", "Dev", "dev-", "my_run", "my-run", "my.run", "second", f"{LONG}1", f"{LONG}2")
INSTANCES = ("", "second", "dev", "s" * 30)
DATASETS = ("shakespeare-char", "openwebtext", "x" * 63, "corpus-", "Wiki_2.en")


@pytest.mark.parametrize("stack", ["dev", "my_run", "e2e-multi"])
def test_good_names_stay_as_they_were(stack: str) -> None:
    """Another name is another Job, which the next `pulumi up` of every such stack would make."""
    name = dataset_job_name("shakespeare-char", stack, "", owns_platform=True)
    assert name == "download-tiny-shakespeare"


def test_hyphens_do_not_make_one_name() -> None:
    """The second of two stacks with one name failed, because the Job belonged to the first."""
    runs = [
        ("wiki-small", "platform", True),
        ("wiki", "small", False),
        ("wiki", "a-b", False),
        ("wiki-a", "b", False),
    ]
    names = [dataset_job_name(*run[:2], "", owns_platform=run[2]) for run in runs]
    assert len({*names}) == len(runs)


@pytest.mark.parametrize("dataset", DATASETS)
def test_each_run_has_a_valid_name(dataset: str) -> None:
    """Two runs with one name took each other's Job, and the cluster refused other names."""
    runs = [(stack, instance, False) for stack, instance in product(STACKS, INSTANCES)]
    runs += [("platform", instance, True) for instance in INSTANCES]
    names = [dataset_job_name(dataset, *run[:2], owns_platform=run[2]) for run in runs]
    assert len({*names}) == len(runs)
    assert [name for name in names if not DNS_LABEL.fullmatch(name)] == []


def test_name_says_what_it_is() -> None:
    """As far as it may, before the hash."""
    name = dataset_job_name("Wiki_2.en", "My_Run", "", owns_platform=False)
    assert re.fullmatch("download-wiki-2-en-my-run-[0-9a-f]{8}", name)
