"""The explorer: one HTML page that shows how loading works, on the reader's numbers and on real runs."""
