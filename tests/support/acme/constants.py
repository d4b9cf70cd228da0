"""Numbers that several plug-ins use."""

SHARE = 0.5
LIMIT = 3


def weigh(value: float) -> float:
    """Return the weight of a value."""
    return 2.0 * value + 1.0
