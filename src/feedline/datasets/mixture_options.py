"""What a mixture of streams is told, checked.

Takes: what the user has passed to `MixtureStream`. Gives: the sources, integer weights, a word for each source's end.
Promises: an error names the argument, and what it should be.
Not its job: mixing (mixture_stream).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feedline.datasets.apportioning import weights_with_zeros
from feedline.datasets.stretches import Stretches
from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_whole

Weights = Mapping[str, float]
_ENDS = ("stop", "repeat", "drop")


def checked_sources(sources: Any) -> dict[str, Any]:
    """The iterable datasets by name."""
    if not isinstance(sources, Mapping):
        raise OptionTypeError(f"sources must be a dict of iterable datasets by name; got {type(sources).__name__}")
    if not sources:
        raise OptionError("sources is empty: pass at least one")
    for name, source in sources.items():
        kind = type(source).__name__
        if not hasattr(type(source), "__iter__"):
            raise OptionTypeError(f"sources[{name!r}] ({kind}) has no __iter__; Mixture mixes map-style datasets")
        if hasattr(type(source), "__next__"):
            raise OptionTypeError(
                f"sources[{name!r}] ({kind}) is an iterator, which can be read only once: pass an object whose "
                "__iter__ begins anew, such as feedline.sources.GeneratorStream(function)"
            )
    return dict(sources)


def weights_by_sample(names: tuple[str, ...], weights: Any) -> dict[int, list[int]]:
    """Integer weights, by the sample from which they hold."""
    if not isinstance(weights, Mapping):
        raise OptionTypeError(f"weights must be a dict of numbers by name; got {weights!r}")
    if not all(isinstance(each, Mapping) for each in weights.values()) or not weights:
        return {0: _in_order("weights", names, weights)}
    steps = {check_whole("weights: a number of samples", step, least=0): each for step, each in weights.items()}
    if 0 not in steps:
        raise OptionError(f"weights must say what holds from sample 0 on; got {sorted(steps)}")
    return {step: _in_order(f"weights[{step}]", names, steps[step]) for step in sorted(steps)}


def _in_order(option: str, names: tuple[str, ...], weights: Weights) -> list[int]:
    found = dict(zip(weights, weights_with_zeros(option, weights), strict=True))
    missing = [name for name in names if name not in found]
    unknown = [name for name in found if name not in names]
    if missing or unknown:
        wrong = [f"{missing!r} are missing"] * bool(missing) + [f"{unknown!r} are not sources"] * bool(unknown)
        raise OptionError(f"{option} must name the sources of the mixture, but {' and '.join(wrong)}")
    live = {name: found[name] for name in names if found[name]}
    Stretches(list(live.values()), option, list(live))  # refuses a weight that is too small
    return [found[name] for name in names]


def ends_by_name(names: tuple[str, ...], given: Any) -> dict[str, str]:
    """What happens when each source has ended."""
    words = dict(given) if isinstance(given, Mapping) else dict.fromkeys(names, given)
    if set(words) != set(names):
        raise OptionError(f"when_ended must have a word for each source of {list(names)}; got {words!r}")
    for name, word in words.items():
        if word not in _ENDS:
            raise OptionError(f"when_ended must be 'stop', 'repeat' or 'drop'; got {word!r} for {name!r}")
    return words
