"""Text sides: prompts in a frozen CLIP tower, or word vectors."""
from .clip_text import CLIPText
from .prompts import SoftPrompt
from .words import WordTableText, WordVectorText, embed_names, load_word_vectors

__all__ = ['CLIPText', 'SoftPrompt', 'WordVectorText']
