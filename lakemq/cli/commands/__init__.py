"""The commands, one noun a file; each has ``register(subparsers)`` and ``run(args) -> int``.

Nothing is imported here: a command loads its own module only.
"""
