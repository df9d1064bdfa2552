"""Hugging Face's `datasets`: tables read by columns, streams by shards."""

from feedline.sources.hugging_face.from_hf import HuggingFaceDataset, from_hf
from feedline.sources.hugging_face.hf_stream import HuggingFaceStream

__all__ = ["HuggingFaceDataset", "HuggingFaceStream", "from_hf"]
