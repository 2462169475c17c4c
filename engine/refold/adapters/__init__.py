"""Adapters: refold's memory behind the interfaces of agent frameworks. Each adapter uses only public names."""
