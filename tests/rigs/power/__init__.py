"""The power-loss rig: what a power cut could leave of a store, built from a recording, opened and judged."""
