"""The public handles and verbs: each checks its arguments, builds an event, and commits it."""
