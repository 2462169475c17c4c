"""Adapters: refold's memory behind the interfaces of agent frameworks. Each one uses public names alone."""
