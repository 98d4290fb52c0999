"""The name of the Job that prepares the data set."""

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
    """In a stack that owns its platform, the Job keeps the name `download-tiny-shakespeare`.
    Another name would make another Job with the next `pulumi up` of every such stack.
    """
    name = dataset_job_name("shakespeare-char", stack, "", owns_platform=True)
    assert name == "download-tiny-shakespeare"


def test_hyphens_do_not_make_one_name() -> None:
    """Hyphens in the names of stacks and data sets never give two runs one name. Otherwise the
    second stack would fail, because the Job belongs to the first one.
    """
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
    """Each run has a valid name of its own. Otherwise two runs would take each other's Job, or the
    cluster would refuse the name.
    """
    runs = [(stack, instance, False) for stack, instance in product(STACKS, INSTANCES)]
    runs += [("platform", instance, True) for instance in INSTANCES]
    names = [dataset_job_name(dataset, *run[:2], owns_platform=run[2]) for run in runs]
    assert len({*names}) == len(runs)
    assert [name for name in names if not DNS_LABEL.fullmatch(name)] == []


def test_name_says_what_it_is() -> None:
    """The name has the data set and the stack in readable form before its hash."""
    name = dataset_job_name("Wiki_2.en", "My_Run", "", owns_platform=False)
    assert re.fullmatch("download-wiki-2-en-my-run-[0-9a-f]{8}", name)
