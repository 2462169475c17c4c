"""The agent's side of a memory: tools, context, hooks, extraction, and a loop."""
