"""`python -m jaxattn bench`: time and compile time of attention, ours beside others', in one run.

cases           which shapes, masks and derivatives               cases.py
contestants     ours, jax.nn, Flax, einsum, PyTorch               contestants.py, torch_sdpa.py
clock           warm up, interleave, repeat                       clock.py
table           medians, ratios, share of the matmul rate         table.py, plot.py
cli             the command                                       cli.py
"""
