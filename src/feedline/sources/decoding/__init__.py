"""Bytes of a file into what a sample holds: pictures, arrays, text, sound, chosen by the file's suffix.

Takes: a name and bytes. Gives: a NumPy array, a string, whatever JSON holds, or what a decoder of the user's makes.
Promises: nothing is ever unpickled unless told to; sizes are read from headers and limited before memory is taken for
what they promise; what cannot be decoded is a SourceError that says why.
Not its job: where bytes come from (places, files).

Inside, by_suffix imports the others: pictures (with resizing), numpy_files, sound, text.
"""

from feedline.sources.decoding.by_suffix import MAX_BYTES, MAX_PIXELS, PICTURES, Decoders

__all__ = ["MAX_BYTES", "MAX_PIXELS", "PICTURES", "Decoders"]
