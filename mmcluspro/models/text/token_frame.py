"""Token ids of texts, and the fixed ids that a tokenizer puts around them."""
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

CHUNK = 1024  # texts that are tokenized at once: rows are long


class TokenFrame:
    """Splits what a tokenizer returns into ``start``, the text itself and ``end``.

    Works for any tokenizer of open_clip, because it looks at what an empty text becomes:
    ``[SOS] [EOS 0 0 …]`` in CLIP, ``[] [EOS EOS …]`` in SigLIP, ``[CLS] [SEP 0 …]`` in BERT.

    Args:
        tokenizer (Callable): Texts to ids, shape (N, context_length).
        context_length (int): Number of tokens the tower takes.
        vocab_size (int): Number of ids the tower knows.
    """

    def __init__(self, tokenizer: Callable[..., Tensor], context_length: int,
                 vocab_size: int) -> None:
        self.tokenizer = tokenizer
        self.context_length = context_length
        self.vocab_size = vocab_size
        empty, probe = self._rows(['', 'a'])
        split = next(i for i, (left, right) in enumerate(zip(empty, probe)) if left != right)
        self.start, self.end = empty[:split], empty[split:]
        self.filler = probe[split]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text without what stands around it."""
        found = [self._inner(row) for start in range(0, len(texts), CHUNK)
                 for row in self._rows(texts[start:start + CHUNK], trim=True)]
        # Byte-level vocabularies know everything; others have an id for what they do not know.
        unknown = getattr(getattr(self.tokenizer, 'tokenizer', None), 'unk_token_id', None)
        bad = [text for text, ids in zip(texts, found)
               if unknown in ids or any(i >= self.vocab_size for i in ids)]
        if bad:
            raise ValueError(
                f'The vocabulary of the text tower ({self.vocab_size} ids) does not know {bad}. '
                'Give these names other words through readable (raw name -> words), or use '
                'another arch.')
        return found

    def _inner(self, row: list[int]) -> list[int]:
        for stop in range(len(self.start), len(row)):
            if row[stop:] == self.end[:len(row) - stop]:
                return row[len(self.start):stop]
        raise ValueError(
            f'Prompts cannot be put together from the ids of {type(self.tokenizer).__name__}: '
            'a text is not followed by what follows an empty one. Use another arch.')

    def _rows(self, texts: Sequence[str], trim: bool = False) -> list[list[int]]:
        if not len(texts):
            return []
        with torch.device('cpu'):  # under torch.device('meta') there would be no ids to look at
            # Longer than the tower takes, because tokenizers truncate silently.
            ids = self.tokenizer(list(texts), context_length=8 * self.context_length)
        if trim:  # hundreds of fillers behind names of a few tokens
            used = (ids != ids[:, -1:]).any(dim=0).nonzero()
            ids = ids[:, :int(used[-1]) + 2 if len(used) else 1]
        return ids.tolist()
