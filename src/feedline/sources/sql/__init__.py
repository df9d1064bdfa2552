"""Rows of a database as samples: `SQLDataset` (one query, kept as columns) and `SQLStream` (read as it is needed).

Inside, each file imports only those to its left: parameters, database (where it is), mistakes (what went wrong, in
words), statements (one, that only reads); gathering (a column that grows), columns (rows as Arrow columns), digits
(lost by ADBC in mixed columns); drivers, dbapi (a connection each), connecting (a query, asked); parts (which keys are
whose), keyed (a query by its key); dataset, stream.
"""

from feedline.sources.sql.sql_dataset import SQLDataset
from feedline.sources.sql.sql_stream import SQLStream

__all__ = ["SQLDataset", "SQLStream"]
