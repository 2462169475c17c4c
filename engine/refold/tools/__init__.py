"""What stands between a memory and a language model: tools, contexts, hooks, extraction, a loop."""
