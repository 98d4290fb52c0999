"""Converts Kubernetes' quantities, such as `500m`, into numbers. All functions are pure."""

import re

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_UNITS = {
    "": 1.0,
    "m": 1e-3,
    "u": 1e-6,
    "n": 1e-9,
    **{unit: 1000.0**power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)},
}
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_QUANTITY = re.compile(rf"({_NUMBER}(?:[eE][+-]?[0-9]+)?)|({_NUMBER})([a-zA-Z]+)")
_MOST = float(2**63 - 1)  # Kubernetes caps larger numbers at this one.


def amount(quantity: str) -> float:
    """The number that a quantity stands for: `500m` is 0.5, `4Gi` is 4 * 2**30, `1e3` is 1000.

    Raises:
        ValueError: the text is not a quantity.
    """
    found = _QUANTITY.fullmatch(quantity)
    unit = (found[3] or "") if found else ""
    if not found or unit not in _UNITS:
        raise ValueError(
            f"{quantity!r} is not a quantity of Kubernetes. Write it like 2, 500m, 0.5 or 4Gi"
        )
    number = float(found[1] or found[2]) * _UNITS[unit]
    return max(-_MOST, min(_MOST, number))


def whole(quantity: object) -> int:
    """The whole number of devices that a quantity stands for, such as 1000 for `1k`; 0 for None.

    Kubernetes writes a number of devices without its thousands: `1k` for 1000 time slices.

    Raises:
        ValueError: as for `amount`.
    """
    return int(amount(str(quantity or 0)))
