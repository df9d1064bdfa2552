"""The line a batch travels: samplers, permutation, plan, fetch, collate, deliver."""
