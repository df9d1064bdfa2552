"""Hugging Face's `datasets`: tables read by columns, streams by shards."""

from feedline.sources.hugging_face.from_hf import HuggingFaceDataset, HuggingFaceStream, from_hf

__all__ = ["HuggingFaceDataset", "HuggingFaceStream", "from_hf"]
