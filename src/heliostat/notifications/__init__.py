"""Telling people elsewhere: where to, in which words, and how it gets there."""
