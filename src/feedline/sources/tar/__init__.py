"""Tar shards in WebDataset's layout: read by number (TarDataset) or from front to back (TarStream), and written.

Within this package, each file imports only files to its left: bytes_of, members, samples, values, unfinished, index,
dataset, stream, writer.
"""

from feedline.sources.tar.index import write_index
from feedline.sources.tar.tar_dataset import TarDataset
from feedline.sources.tar.tar_stream import TarStream
from feedline.sources.tar.tar_values import decode_plain
from feedline.sources.tar.writer import TarWriter

__all__ = ["TarDataset", "TarStream", "TarWriter", "decode_plain", "write_index"]
