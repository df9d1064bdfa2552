"""Object storage as a place: S3, Google Cloud Storage, Azure, plain web servers, through obstore.

Takes: a URL and options. Gives: `ObjectStore`, a Place (places).
Promises: those of places; many requests at a time; nothing hangs after a fork; printed texts have no credentials.
Not its job: samples (object_dataset), keeping objects on disk (cached).

Within this package, store (the place itself) imports driver (obstore in this process, and after a fork) and telling
(its errors).
"""

from feedline.sources.object_store.store import ObjectStore

__all__ = ["ObjectStore"]
