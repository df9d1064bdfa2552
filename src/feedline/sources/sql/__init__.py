"""Rows of a database as samples: `SQLDataset` (one query, kept as columns) and `SQLStream` (read when needed).

Within this package, each file imports only files to its left: parameters, database (where it is), mistakes (what went
wrong, in words), statements (a single one, which only reads); gathering (a column that grows), columns (rows as Arrow
columns), digits (lost by ADBC in mixed columns); drivers, mysql, dbapi (a connection each), connecting (runs a query);
parts (which keys belong to which part), keyed (a query by its key); dataset, stream.
"""

from feedline.sources.sql.sql_dataset import SQLDataset
from feedline.sources.sql.sql_stream import SQLStream

__all__ = ["SQLDataset", "SQLStream"]
