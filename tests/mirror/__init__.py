"""Mirrors under attack: processes that die in the middle of a round, and a machine that edits files and log at once."""
