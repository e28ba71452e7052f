"""Metrics of a process for Prometheus: a catalogue, and a collector over the process's report."""
