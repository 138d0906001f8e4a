"""Which implementation of a kernel runs, and what is it held against?

`torch_ops` is the reference of every kernel. Always true: a faster implementation beside it gives the same numbers.
"""
