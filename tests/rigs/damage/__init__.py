"""The corruption rig: a store with everything in it, damaged in every way, and what comes of reading it."""
