"""From the bytes of a file to the value in a sample: pictures, arrays, text, sound, chosen by the file's suffix.

Takes: a name and bytes. Gives: a NumPy array, a string, whatever JSON holds, or the result of a user's decoder.
Promises: nothing is unpickled unless the user allows it; sizes in headers are read and limited before memory is
allocated for them; what cannot be decoded is a SourceError that says why.
Not its job: where bytes come from (places, files).

Within this package, by_suffix imports the others: pictures (with resizing), numpy_files, sound (with lengths, for which
chunks and mp3 count, and ogg), text.
"""

from feedline.sources.decoding.by_suffix import MAX_BYTES, MAX_PIXELS, PICTURES, Decoders

__all__ = ["MAX_BYTES", "MAX_PIXELS", "PICTURES", "Decoders"]
