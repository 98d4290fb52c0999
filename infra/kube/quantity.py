"""Converts Kubernetes' quantities, such as `500m`, into numbers. All functions are pure."""

# https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
_UNITS = {
    "": 1.0,
    "m": 1e-3,
    "u": 1e-6,
    "n": 1e-9,
    **{unit: 1000.0**power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)},
}


def amount(quantity: str) -> float:
    """The number that a quantity stands for: `500m` is 0.5, `4Gi` is 4 * 2**30, `1e3` is 1000.

    Raises:
        ValueError: the text is not a quantity.
    """
    try:
        return float(quantity)
    except ValueError:
        number = quantity.rstrip("munkKMGTPEi")
        unit = quantity[len(number) :]
        if unit not in _UNITS:
            raise
        return float(number) * _UNITS[unit]
