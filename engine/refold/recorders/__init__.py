"""Recorders: readers of other programs' sessions, each turning a file into messages for the log."""
