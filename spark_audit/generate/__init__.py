"""Ledgers of a mesh that never was, with planted faults: for tests and for sizing a cluster."""
