"""The values of a query: always bound, never written into its text.

Takes: the user's `params`, the driver's placeholder style. Gives: the same, checked; values of our own with their
placeholders.
Promises: the user's query and values reach the driver unchanged. Not its job: binding (drivers, dbapi).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from feedline.errors import OptionTypeError

Params = tuple[Any, ...] | dict[str, Any]
STYLES = ("qmark", "dollar", "numeric", "named", "format", "pyformat")
"""DB-API's names for ?, :1, :name, %s and %(name)s; "dollar" is PostgreSQL's $1."""


def check_params(value: Any) -> Params:
    """A tuple or a dict of values, as the query needs them.

    >>> check_params([1, "train"]), check_params({"split": "train"})
    ((1, 'train'), {'split': 'train'})
    """
    if isinstance(value, Mapping):
        return {str(name): each for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return tuple(value)
    raise OptionTypeError(
        f"params must be a tuple of the query's values in their order, such as ('train',), or a dict of them by name; "
        f"got a {type(value).__name__}"
    )


class Bound:
    """The values of one query, to which more can be added.

    >>> bound = Bound("qmark", ("train",))
    >>> f"id > {bound.add(7)}", bound.params
    ('id > ?', ('train', 7))
    """

    def __init__(self, style: str, params: Params) -> None:
        self._style = style
        self._given = len(params)
        self.params = params

    def add(self, value: Any) -> str:
        """Add a value; returns its placeholder in the text."""
        if isinstance(self.params, dict) or (self._style == "named" and not self._given):
            name = f"feedline_{len(self.params)}"
            self.params = {**dict(self.params), name: value}
            return {"named": f":{name}", "pyformat": f"%({name})s"}.get(self._style, f"${name}")
        self.params = (*self.params, value)
        number = len(self.params)
        return {"dollar": f"${number}", "numeric": f":{number}", "qmark": "?"}.get(self._style, "%s")

    def text(self, query: str) -> str:
        """The user's query in the form that the driver needs together with these values.

        A query without values has single % signs; with values, these drivers take % as the start of a placeholder.

        >>> bound = Bound("format", ())
        >>> f"{bound.add(7)}, {bound.text('id % 2')}"
        '%s, id %% 2'
        """
        was_plain = self._style in ("format", "pyformat") and not self._given and self.params
        return query.replace("%", "%%") if was_plain else query
