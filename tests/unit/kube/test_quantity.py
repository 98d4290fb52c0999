"""Which number a quantity of Kubernetes stands for."""

import re

import pytest

from infra.kube.quantity import amount

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
UNITS = [
    ("", 1),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 10**3),
    ("M", 10**6),
    ("G", 10**9),
    ("T", 10**12),
    ("P", 10**15),
    ("E", 10**18),
    ("Ki", 2**10),
    ("Mi", 2**20),
    ("Gi", 2**30),
    ("Ti", 2**40),
    ("Pi", 2**50),
    ("Ei", 2**60),
    ("e3", 1000),
    ("E3", 1000),
    ("e+3", 1000),
    ("e-3", 1e-3),
]


@pytest.mark.parametrize("number", ["3", "0.5", "+3", "-3", ".5", "3."])
@pytest.mark.parametrize(("unit", "size"), UNITS)
def test_every_unit_of_kubernetes_is_read(unit: str, size: float, number: str) -> None:
    """Each unit and each form of a number is read. A ResourceQuota or a node may use any of them,
    and otherwise a check of the cluster would end with an error.
    """
    assert amount(f"{number}{unit}") == pytest.approx(float(number) * size)


@pytest.mark.parametrize(("text", "most"), [("1e400", 2**63 - 1), ("-16Ei", 1 - 2**63)])
def test_number_is_capped_as_kubernetes_caps_it(text: str, most: int) -> None:
    """Kubernetes takes no larger number. An infinite one would end a later division in an error."""
    assert amount(text) == float(most)


@pytest.mark.parametrize(
    "text",
    [
        *("", "Gi", ".", "-", "four", "4Xi", "4nu", "4mi", "4K", "4ki", "4ni", "4e", "4e3Gi"),
        *("nan", "NaN", "inf", "-inf", "infinity", "nanm", "infGi", "1_0", "1_0Gi", "0x10"),
        *(" 4", "4 ", "4\n", "4 Gi", "--4", "4.5.6", "4e1.5", "1e1_0"),
        # The Arabic digit three, which Python takes in a number.
        *("\u0663", "\u0663Gi", "1\u0663Gi"),
    ],
)
def test_text_that_is_no_quantity_is_refused(text: str) -> None:
    """Python's own numbers have more forms. With `nan`, for example, each comparison would be
    false, so a check of a quota would find no fault.
    """
    said = f"{text!r} is not a quantity of Kubernetes. Write it like 2, 500m, 0.5 or 4Gi"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        amount(text)
