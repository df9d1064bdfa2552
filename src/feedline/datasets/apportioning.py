"""Integers in given proportions, by exact arithmetic.

Takes: numbers by name, or a total and weights.
Gives: `fractions_of` (numbers that sum to 1), `weights_of` (any positive ones), both as integer weights; `apportion`.
Promises: the shares sum exactly to the total; every share is its exact quota, rounded down or up.
Not its job: what is shared out (splitting; order/mixing).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from numbers import Rational, Real
from typing import Any

from feedline.errors import OptionError, OptionTypeError


def fractions_of(name: str, given: Mapping[str, Any]) -> list[int]:
    """The weights of fractions, which must sum to 1.

    >>> fractions_of("fractions", {"train": 0.8, "val": 0.15, "test": 0.05})
    [16, 3, 1]
    """
    exact = _exact(name, given)
    total = sum(exact)
    if not math.isclose(total, 1, rel_tol=1e-6):  # as exact as float32
        raise OptionError(f"{name} must sum to 1; got {dict(given)}, which sum to {float(total):.10g}")
    return _whole(exact)


def weights_of(name: str, given: Mapping[str, Any]) -> list[int]:
    """The weights of positive numbers, which may have any sum.

    >>> weights_of("proportions", {"web": 1.5, "code": 1})
    [3, 2]
    """
    exact = _exact(name, given)
    for key, value in zip(given, exact, strict=True):
        if not value:
            raise OptionError(f"{name}[{key!r}] must be above 0; got 0: leave {key!r} out altogether")
    return _whole(exact)


def weights_with_zeros(name: str, given: Mapping[str, Any]) -> list[int]:
    """The weights of numbers of which some may be 0, but not all.

    >>> weights_with_zeros("weights", {"web": 1.5, "code": 0})
    [1, 0]
    """
    exact = _exact(name, given)
    if not any(exact):
        raise OptionError(f"{name}: one number must be above 0; got {dict(given)}")
    return _whole(exact)


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Divide `total` in these proportions: quotas rounded down, and the rest to the largest remainders.

    >>> apportion(10, [16, 3, 1]), apportion(2, [1, 1, 1])
    ([8, 2, 0], [1, 1, 0])
    """
    whole = sum(weights)
    shares, remainders = [], []
    for weight in weights:
        share, remainder = divmod(total * weight, whole)
        shares.append(share)
        remainders.append(remainder)
    left = total - sum(shares)
    for place in sorted(range(len(weights)), key=lambda place: -remainders[place])[:left]:
        shares[place] += 1
    return shares


def _exact(name: str, given: Mapping[str, Any]) -> list[Fraction]:
    if not isinstance(given, Mapping):
        raise OptionTypeError(f"{name} must be a dict of numbers by name; got {given!r}")
    if not given:
        raise OptionError(f"{name} is empty; pass a dict of numbers by name")
    return [_number(f"{name}[{key!r}]", value) for key, value in given.items()]


def _number(name: str, value: Any) -> Fraction:
    """A number as it was written: 0.1 is a tenth, not the binary number next to it."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise OptionTypeError(f"{name} must be a number; got {value!r}")
    if not 0 <= float(value) < math.inf:
        raise OptionError(f"{name} must be a finite number of at least 0; got {value!r}")
    if isinstance(value, Rational):
        return Fraction(value)
    # NumPy's text of a float32 has the digits that were written.
    return Fraction(str(value) if hasattr(value, "dtype") else repr(float(value)))


def _whole(exact: list[Fraction]) -> list[int]:
    denominator = math.lcm(*(value.denominator for value in exact))
    weights = [int(value * denominator) for value in exact]
    common = math.gcd(*weights)
    return [weight // common for weight in weights]
