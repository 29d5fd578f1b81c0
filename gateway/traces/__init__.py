"""Traces by OpenTelemetry: settings, the tracer that exports, and the spans of requests. Nothing else knows OpenTelemetry."""
