"""Samples that are kept after they were made once: `cached`, `materialize`.

From top to bottom: materializing; sample_cache; pack_folder, records; identity. Each imports only those after it.
"""
