"""Comparison report: one self-contained HTML page with charts."""
