"""The kinds of workers: the loop itself, threads, processes. All fulfil one contract and run the same code (body)."""
