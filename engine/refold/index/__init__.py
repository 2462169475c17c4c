"""The index: vectors and words of memories in RAM, and the rankings that search them."""
