"""Helpers without knowledge of data or models: files, digests, paths, lists of faults."""
