"""Exceptions raised at every point at which the interpreter looks for signals, in every public verb, and what is left.

``points`` finds the points and trips a signal there, ``verbs`` says what is interrupted, ``worlds`` in which store and
what must hold afterwards, ``rig`` runs it in processes that may hang, ``signals`` sends real signals.
"""
