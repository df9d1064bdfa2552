"""The benchmark: datasets with feedline's loader and torch's, in turns.

workloads (ours, by name) → subject (the same loader of either library) → pace (how fast it is) → side (a process that
answers) → turns (a process that is asked) → holding (contests) → comparison (plain data) → page, picture, command.
noise, comparing and turns also serve the repository's own benchmarks.
"""
