"""From indices, or a stream, to samples: the same code in every kind of worker."""
