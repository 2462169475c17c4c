"""What an agent touches: the tools that a model may call, and what goes with them."""
