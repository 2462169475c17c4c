"""The log: ordered bytes on disk or in RAM, with no knowledge of their meaning."""
