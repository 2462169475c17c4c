"""The fault rig: calls of a workload that change or flush files fail, one after the other, and the store is judged."""
