"""Flax is here, or an error that says how to get it. Imported first."""

try:
    import flax.nnx as nnx  # noqa: F401
except ImportError as error:
    raise ImportError('jaxattn.nn needs Flax; pip install "jaxattn[flax]"') from error
