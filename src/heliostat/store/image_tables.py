"""The tables of images that people build: their names, and where they were pushed."""

from sqlalchemy import Column, Float, Index, Integer, String, Table

from heliostat.store.schema import metadata

image_names = Table(  # which one a name means now
    "image_names",
    metadata,
    Column("user", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("digest", String, nullable=False),  # of the environment that holds it
    Column("named_at", Float, nullable=False),
    Index("image_names_by_digest", "digest"),
)

image_pushes = Table(  # the state of each is that of its job
    "image_pushes",
    metadata,
    Column("job_id", Integer, primary_key=True),
    Column("digest", String, nullable=False),
    Column("target", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("pushed_digest", String),
    Index("image_pushes_by_digest", "digest"),
)
