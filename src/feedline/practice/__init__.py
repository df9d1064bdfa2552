"""Batch-size practice: accumulate, scale the learning rate, measure the noise, find what fits into memory."""
