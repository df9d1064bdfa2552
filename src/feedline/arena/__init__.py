"""Memory that batches are made in, shared by every kind of worker.

`segment` is the memory itself, `slots` who may write where and when it is free again, `packing` how a batch of any
shape gets into a slot and out of it.
"""
