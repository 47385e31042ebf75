"""Text sides: prompts in a frozen CLIP tower, or word vectors."""
from .clip_text import CLIPText
from .prompt import SoftPrompt
from .word_table_text import WordTableText, WordVectorText
from .word_vectors import embed_names, load_word_vectors

__all__ = ['CLIPText', 'SoftPrompt', 'WordTableText', 'WordVectorText', 'embed_names',
           'load_word_vectors']
