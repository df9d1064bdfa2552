"""TuneResult: which number and kind of workers keep a training step busy, measured.

subject (what is loaded, and its loaders) → running (one setting, measured) → search (which settings, in which order:
pure) → choice and verdict (the setting, the bottleneck, the words: pure) → outcome (the result, as data) → screen,
picture and page (how it looks). tuner does all of it.
"""
