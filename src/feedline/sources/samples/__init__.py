"""Samples that are kept after they were made once: `cached`, `materialize`.

From top to bottom: materializing, parquet_shards; sample_cache; pack_folder, pack_memory, records; memory_by_name,
packs; identity; made_of, code_names. Each imports only those after it.
"""
