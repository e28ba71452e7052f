"""Spans of batches on their way through the mesh, for OpenTelemetry."""
