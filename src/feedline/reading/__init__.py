"""From indices, or a stream, to samples: the same in every kind of worker."""
