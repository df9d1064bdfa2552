"""Parquet and Arrow files: rows by number (ParquetDataset) or row group by row group (ParquetStream).

Within this package, each file imports only files to its left: opening, groups, columns, dataset, stream.
"""

from feedline.sources.parquet.parquet_dataset import ParquetDataset
from feedline.sources.parquet.parquet_stream import ParquetStream

__all__ = ["ParquetDataset", "ParquetStream"]
