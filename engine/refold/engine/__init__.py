"""The engine: the shell around the pure fold, and the only place where log and fold meet."""
