"""The list of exceptions from the proxy: what it contains, and which hosts are reached without the
proxy.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.no_proxy import (
    CLUSTER_NAMES,
    bypasses_proxy,
    is_entry,
    missing_entries,
    no_proxy,
    required_entries,
    split_no_proxy,
)

hosts = st.text("abc.-", min_size=1, max_size=8)
networks = st.ip_addresses(v=4).map(lambda address: f"{address}/16")
addresses = st.ip_addresses().map(str)
lists = st.lists(st.one_of(hosts, addresses), max_size=8)


@given(addresses, networks, networks, lists)
def test_holds_everything_required_and_all_of_the_users_own(
    node: str, pods: str, services: str, more: list[str]
) -> None:
    """The list contains exactly the entries that the cluster needs and those of the user."""
    entries = no_proxy(required_entries(node, pods, services), more).split(",")
    assert {node, pods, services, *CLUSTER_NAMES, *more} == set(entries)


@given(addresses, networks, networks, lists)
def test_names_each_entry_once_and_the_required_ones_first(
    node: str, pods: str, services: str, more: list[str]
) -> None:
    """The list has each entry once, and first those that the cluster needs."""
    required = required_entries(node, pods, services)
    entries = no_proxy(required, more).split(",")
    assert len(entries) == len(set(entries))
    assert tuple(entries[: len(required)]) == required


@given(lists)
def test_is_stable_when_its_own_result_is_added_again(more: list[str]) -> None:
    """A list that is added to itself stays the same."""
    required = required_entries("10.0.0.1", "10.42.0.0/16", "10.43.0.0/16")
    once = no_proxy(required, more)
    assert no_proxy(required, split_no_proxy(once)) == once


@given(lists)
def test_nothing_is_missing_from_a_computed_list(more: list[str]) -> None:
    required = required_entries("10.0.0.1", "10.42.0.0/16", "10.43.0.0/16")
    assert missing_entries(split_no_proxy(no_proxy(required, more)), required) == ()


@given(st.data())
def test_each_entry_left_out_is_named(data: st.DataObject) -> None:
    required = required_entries("10.0.0.1", "10.42.0.0/16", "10.43.0.0/16")
    left_out = data.draw(st.sets(st.sampled_from(required)))
    given_ = [entry for entry in required if entry not in left_out]
    assert set(missing_entries(given_, required)) == left_out


def test_blanks_and_repetitions_are_dropped() -> None:
    assert split_no_proxy(" a, b ,,a ,") == ("a", "b")


@pytest.mark.parametrize(
    ("host", "entries", "past"),
    [
        ("mirror.corp", [".corp"], True),
        ("mirror.corp", ["corp"], True),
        ("mirror.corp", ["mirror.corp"], True),
        ("mirrorcorp", [".corp", "10.0.0.0/8"], False),
        ("10.1.2.3", ["10.0.0.0/8"], True),
        ("10.1.2.3", ["10.1.2.3"], True),
        ("11.1.2.3", ["10.0.0.0/8", ".svc"], False),
        ("fd00::1", ["10.0.0.0/8", "fd00::/8"], True),
        ("mirror.corp", ["*"], True),
        ("10.1.2.3", ["*"], True),
    ],
)
def test_hosts_past_the_proxy_are_those_that_curl_takes_for_it(
    host: str, entries: list[str], past: bool
) -> None:
    """A host is reached without the proxy if curl would do so with these exceptions."""
    assert bypasses_proxy(host, entries) is past


@pytest.mark.parametrize(
    "entry",
    [
        *("*", "localhost", ".corp.example", "*.corp.example", "git.corp:8443", "my_host."),
        *("10.1.2.3", "10.1.2.3:80", "10.1.0.0/16", "fd00::4", "fd00::/8", "[::1]", "[::1]:80"),
    ],
)
def test_known_kinds_of_entries_are_taken(entry: str) -> None:
    """Entries that at least one program understands are accepted."""
    assert is_entry(entry)


@pytest.mark.parametrize(
    "entry", ["http://x", "a b", "a;b", "10.0.0.0/33", "corp.example/", "10.1.*", "'corp'", "a..b"]
)
def test_entries_that_nobody_understands_are_none(entry: str) -> None:
    assert not is_entry(entry)
