"""Memory that batches are made in, shared by every kind of worker.

`segment` is the memory itself, `slots` decides who may write where and when it is free again, `packing` writes a batch
of any shape into a slot and reads it back.
"""
