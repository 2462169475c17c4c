"""Skills: written instructions for a kind of task, found in files or learned, and put before a model when they help."""
