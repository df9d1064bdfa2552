"""One epoch after another: what is out, who makes it, and what to do when that goes wrong."""
