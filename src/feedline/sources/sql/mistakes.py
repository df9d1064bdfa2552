"""What went wrong with a database, in helpful words.

Takes: a driver's exception, the database, the query. Gives: a SourceError (or OptionError, if the params are wrong)
that names the table, column, host or user, and the remedy.
Promises: it has no password, nor has its cause. Not its job: catching errors (connecting).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from feedline.errors import FeedlineError, OptionError, SourceError
from feedline.errors.masking import masked
from feedline.sources.sql.database import Database

LONGEST_QUERY = 300
OURS = "feedline_rows"
"""The name of the user's query inside one of ours (keyed)."""

_NAMES = "look at its name, and whether this is the database you mean"
_PARAMS = "give a value for each placeholder, as params=(…,) or params={…}; docs/sql.md has each driver's placeholders"
_WORDS: list[tuple[str, str, str]] = [
    (r"no such table: (\S+)", "there is no table {0}", _NAMES),
    (r'relation "(.+?)" does not exist', "there is no table {0}", _NAMES),
    (r"Table with name (\S+) does not exist", "there is no table {0}", _NAMES),
    (r"Table '(.+?)' doesn't exist", "there is no table {0}", _NAMES),
    (r"Unknown column '(.+?)' in", "there is no column {0}", "look at the table's columns"),
    (r"Duplicate column name '(.+?)'", "the query gives several columns named {0}", "give them different names"),
    (r"no such column: (\S+)", "there is no column {0}", "look at the table's columns"),
    (r"column (\S+) does not exist", "there is no column {0}", "look at the table's columns"),
    (r'Referenced column "(.+?)" not found', "there is no column {0}", "look at the table's columns"),
    (r'does not have a column named "(.+?)"', "there is no column {0}", "look at the table's columns"),
    (
        r'(?:near|at or near) ["\'](.+?)["\']',
        'the query has a syntax error near "{0}"',
        "try it in the database's own shell",
    ),
    (r"password authentication failed for user \"(.+?)\"", "wrong password for user {0}", "correct it in the URL"),
    (r"Access denied for user '(.+?)'@\S+ to database", "the user {0} may not use this database", "GRANT SELECT on it"),
    (r"Access denied for user '(.+?)'@", "wrong password for user {0}, or no such user", "correct it in the URL"),
    (r"Unknown database '(.+?)'", "the server has no database {0}", "look at the URL"),
    (r"command denied to user .* for table ([^\s\")]+)", "the user may not read {0}", "GRANT SELECT on it"),
    (r"no password supplied", "the server asks for a password", "put it into the URL, PGPASSWORD or ~/.pgpass"),
    (r'database "(.+?)" does not exist', "the server has no database {0}", "look at the URL"),
    (r'role "(.+?)" does not exist', "the server has no user {0}", "look at the URL"),
    (r"could not translate host name \"(.+?)\"", "the host {0} is not known", "look at the URL"),
    (r"Can't connect to MySQL server on '(.+?)' \(\[Errno -\d", "the host {0} is not known", "look at the URL"),
    (
        r"connection to server (.+?) failed|timeout expired|Connection refused|Can't connect to MySQL server",
        "the server cannot be reached",
        "look at host and port, and whether the server runs",
    ),
    (r"file is not a database|not a valid DuckDB", "the file is not a database of this kind", "look at the URL"),
    (r"permission denied for (?:\w+ )?(\S+)", "the user may not read {0}", "GRANT SELECT on it"),
    (r"multiple commands", "the query has several statements, and only one is allowed", "give one SELECT"),
    (r"Lost connection|server has gone away", "the connection to the server was lost", "see whether it still runs"),
    (r"(?i:read[- ]?only)", "the query writes, and a source only reads", "give a SELECT"),
]
_MISSING = re.compile(
    r"there is no parameter|bind message supplies|parameter count mismatch|could not find parameter|"
    r"number of bindings|You did not supply|Parameter argument/count mismatch|Values were not provided|"
    r"query parameter missing|placeholders? but|not enough arguments|not all arguments converted|"
    r"format requires a mapping|unsupported format character|right syntax to use near '%[s(]|"
    r"Error converting|Could not convert",
    re.IGNORECASE,
)


class MixedTypes(Exception):
    """SQLite has returned a value of another type than the first ones of its column; its ADBC driver cannot hold it."""


@contextlib.contextmanager
def telling(database: Database, query: str = "") -> Iterator[None]:
    """Within the block, whatever a driver raises is explained in our words."""
    try:
        yield
    except (FeedlineError, MixedTypes):
        raise
    except Exception as error:
        # The driver's text may quote the URL: then it is not shown as the cause either. (The new error gets no name
        # here: it would form a reference cycle, and keep all connections it passed open until garbage collection.)
        raise explained(error, database, query) from (error if database.hide(str(error)) == str(error) else None)


def explained(error: Exception, database: Database, query: str = "") -> SourceError | OptionError:
    """A driver's exception as one of ours."""
    said = database.hide(_said(error)).replace(OURS + ".", "")
    asked = f". The query: {shortened(query)}" if query else ""
    if query and _MISSING.search(said):
        return OptionError(f"params do not fit the query's placeholders ({said}): {_PARAMS}{asked}")
    for pattern, what, remedy in _WORDS:
        match = re.search(pattern, said)
        if match is not None:
            named = [group for group in match.groups() if group] or ["?"]
            return SourceError(f"{database}: {what.format(*named)}: {remedy} ({said}){asked}")
    return SourceError(f"{database}: {type(error).__name__}: {said}{asked}")


def shortened(query: str) -> str:
    """The query on one line that can be read.

    >>> shortened("SELECT id\\n  FROM samples")
    'SELECT id FROM samples'
    """
    line = masked(" ".join(query.split()))
    return line if len(line) <= LONGEST_QUERY else line[: LONGEST_QUERY - 1] + "…"


def _said(error: Exception) -> str:
    """The driver's message on one line, without the query that it repeats."""
    text = re.split(r"\n+(?:query: |Query was: )", str(error).strip())[0]
    lines = [line.strip() for line in text.splitlines() if not re.match(r"LINE \d+:|\s*\^+\s*$", line)]
    return " ".join(line for line in lines if line) or type(error).__name__
