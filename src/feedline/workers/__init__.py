"""The kinds of workers: in the loop itself, threads, processes. One contract (contract), one body (body)."""
