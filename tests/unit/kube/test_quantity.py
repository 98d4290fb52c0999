"""Which number a quantity of Kubernetes stands for."""

import pytest

from infra.kube.quantity import amount


@pytest.mark.parametrize(
    ("text", "number"),
    [("500m", 0.5), ("4Gi", 4 * 2.0**30), ("1e3", 1000), ("250u", 250e-6), ("100n", 100e-9)],
)
def test_every_unit_of_kubernetes_is_read(text: str, number: float) -> None:
    """Quantities are read with usual and with rare units, such as `Gi`, `n` and `u`, and in
    exponential form. A ResourceQuota or a node may use any of them, and otherwise a check of the
    cluster would end with an error.
    """
    assert amount(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "Gi", "4Xi", "4nu", "four"])
def test_text_without_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="could not convert"):
        amount(text)
