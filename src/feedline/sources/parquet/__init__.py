"""Parquet and Arrow files: rows by number (ParquetDataset) or row group by row group (ParquetStream).

Inside, each file imports only those to its left: opening, groups, columns, dataset, stream.
"""

from feedline.sources.parquet.parquet_dataset import ParquetDataset
from feedline.sources.parquet.parquet_stream import ParquetStream

__all__ = ["ParquetDataset", "ParquetStream"]
