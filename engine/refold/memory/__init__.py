"""The memory room: the public verbs. Everything here checks arguments, builds an event, and commits it."""
