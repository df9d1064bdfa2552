"""Numbers in Prometheus' text format.

Takes: metrics and labels. Gives: text. Promises: the text can be parsed, whatever the labels' values are.
Not its job: which numbers exist (stats), serving them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from feedline.errors import OptionError

_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


class Metric(NamedTuple):
    """One number, or one for each of several labels."""

    name: str
    kind: str
    """"counter" or "gauge"."""
    help: str
    values: tuple[tuple[float, Mapping[str, str]], ...]


def exposition(metrics: Iterable[Metric], labels: Mapping[str, str]) -> str:
    """All metrics, with these labels besides their own.

    >>> print(exposition([Metric("epoch", "gauge", "The latest.", ((3, {}),))], {"loader": 'a "b"'}), end="")
    # HELP feedline_epoch The latest.
    # TYPE feedline_epoch gauge
    feedline_epoch{loader="a \\"b\\""} 3
    """
    for name in labels:
        if not _NAME.fullmatch(name):
            raise OptionError(f"{name!r} cannot be a Prometheus label: use only letters, digits and single underscores")
    return "".join(_lines(metric, labels) for metric in metrics)


def _lines(metric: Metric, labels: Mapping[str, str]) -> str:
    name = f"feedline_{metric.name}"
    values = "".join(f"{name}{_labels({**labels, **own})} {value:.17g}\n" for value, own in metric.values)
    return f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n{values}"


def _labels(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
