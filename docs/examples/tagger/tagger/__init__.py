"""A project of its own: its registry has the scope ``tagger``."""
