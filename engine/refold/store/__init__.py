"""The store: bytes on disk or in RAM, and nothing about what they mean."""
