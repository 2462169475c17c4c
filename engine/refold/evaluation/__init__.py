"""Evaluation of retrieval and eviction on public datasets and on your own store; it reports and changes no state."""
