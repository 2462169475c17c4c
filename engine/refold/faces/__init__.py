"""The faces: outermost rooms, each of which may be deleted without a line changing below."""
