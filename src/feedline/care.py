"""`Care`: the options that say what to do when things go wrong, the same for every front.

They stand in the table of options (options.table). Acting on them is not its job: supervise.policy decides, the loop
acts.
"""

from feedline.options import Care

__all__ = ["Care"]
