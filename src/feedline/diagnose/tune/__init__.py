"""Tuning: which number and kind of workers keep a training step busy, measured.

subject (what is loaded, and its loaders) → running (one setting, measured: a trial) → search (which settings, in which
order: pure) → candidates (the choice) and verdict (the bottleneck, the words, the outcome as data: pure) → page (how it
looks). tuner does all of it.
"""
