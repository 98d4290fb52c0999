"""What the doctor is told of a stack's settings."""

from dataclasses import asdict

import pytest

from infra.doctor import make_plan
from infra.expectations import HTTP_PROBE, HTTPS_PROBE
from infra.settings import parse_settings
from tests.unit.stacks import raw_settings

PROXY = "http://proxy:3128"
PROXIES = {"httpProxy": PROXY, "httpsProxy": PROXY, "nodeAddress": "10.1.2.3"}
SUMS = {"k3sSha256": "0" * 64, "k3sInstallerSha256": "1" * 64}


@pytest.mark.parametrize(
    ("changes", "http", "https"),
    [
        ({}, HTTP_PROBE, HTTPS_PROBE),
        ({"k3sMirror": "https://mirror.corp/k3s"}, HTTP_PROBE, "https://mirror.corp/k3s"),
        ({"k3sMirror": "http://mirror.corp", **SUMS}, HTTP_PROBE, "http://mirror.corp"),
        ({"k3sMirror": "https://mirror.corp", **PROXIES}, HTTP_PROBE, "https://mirror.corp"),
        ({"k3sMirror": "http://mirror.corp", **SUMS, **PROXIES}, "http://mirror.corp", HTTPS_PROBE),
        (
            {"k3sMirror": "https://mirror.corp", **PROXIES, "noProxy": ".corp"},
            HTTP_PROBE,
            HTTPS_PROBE,
        ),
    ],
)
def test_way_out_is_tried_where_k3s_comes_from(
    changes: dict[str, str], http: str, https: str
) -> None:
    expect = make_plan(parse_settings(raw_settings("dev", changes), (), "dev")).expect
    assert (expect.http_probe, expect.https_probe) == (http, https), asdict(expect)
