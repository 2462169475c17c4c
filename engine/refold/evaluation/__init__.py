"""Evaluation of retrieval and eviction on public sets and on one's own store; reports, never state."""
