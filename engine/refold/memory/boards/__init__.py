"""The board of a session, or of a node of a project: what callers set, what lies beneath it, and what it shows."""
