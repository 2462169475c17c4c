"""The log: bytes in order, on disk or in RAM, and nothing about what they mean."""
