"""The benchmark: datasets with feedline's loader and torch's, in turns.

workloads (ours, by name) → subject (the same loader of either library) → side (a process that measures windows of it) →
turns (a process that is asked) → bench_run (contests) → comparison (plain data) → page and command.
machine, comparison and turns also serve the repository's own benchmarks.
"""
