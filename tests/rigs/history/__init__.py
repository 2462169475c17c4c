"""Rigs: processes and threads that write at once, killed or not, and a checker of what they say they saw.

``python -m tests.rigs.history --help`` says how to run one for longer, or again with the seed of a failing run.
"""
