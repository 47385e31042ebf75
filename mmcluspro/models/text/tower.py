"""The text half of an open_clip model, frozen, taking vectors instead of token ids."""
from collections.abc import Callable, Sequence
from typing import Any

import torch
from open_clip.transformer import ResidualAttentionBlock
from torch import Tensor, nn

from mmcluspro.utils.device import upload

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


class TextTower(nn.Module):
    """One interface for both layouts of open_clip's text towers.

    Args:
        model (nn.Module): open_clip's ``CLIP`` (text parts on the model itself), or a model with
            the tower under ``text``. Its image half is let go.
        tokenizer (Callable): Texts to ids, shape (N, context_length).
    """

    def __init__(self, model: Any, tokenizer: Callable[..., Tensor]) -> None:
        super().__init__()
        self.separate = hasattr(model, 'text')
        if not self.separate:
            del model.visual
        self.text: Any = model.text if self.separate else model
        self.requires_grad_(False).eval()
        self.frame = TokenFrame(tokenizer, self.text.context_length, self.text.vocab_size)

    @property
    def embedding(self) -> nn.Embedding:
        if hasattr(self.text, 'token_embedding'):
            return self.text.token_embedding
        return self.text.transformer.get_input_embeddings()  # HFTextEncoder

    @property
    def context_length(self) -> int:
        return self.frame.context_length

    @property
    def out_dim(self) -> int:
        if not hasattr(self.text, 'text_projection'):
            return self.text.output_dim  # HFTextEncoder
        projection = self.text.text_projection
        if projection is None:
            return self.embedding.embedding_dim
        return (projection.out_features if isinstance(projection, nn.Linear)
                else projection.shape[1])

    def train(self, mode: bool = True) -> 'TextTower':
        return super().train(False)

    def vectors(self, ids: Sequence[int]) -> Tensor:
        """Token embeddings, shape (n, width)."""
        weight = self.embedding.weight
        return weight[upload(ids, weight.device)]

    def embed(self, texts: Sequence[str]) -> list[Tensor]:
        """Token embeddings of each text, shape (tokens, width)."""
        runs = self.frame.ids(texts)
        vectors = self.vectors([token for ids in runs for token in ids])
        return list(vectors.split([len(ids) for ids in runs]))

    def why_no_tree(self) -> str | None:
        """Reason why the prefix tree would not be exact; None if it is."""
        mask = getattr(self.text, 'attn_mask', None)
        if mask is None or not (mask.is_meta or torch.equal(mask, _causal_mask(mask))):
            return 'its attention is not causal'
        if getattr(self.text, 'cls_emb', None) is not None:
            return 'it adds a class token at the end'
        pool = getattr(self.text, 'text_pool_type' if not self.separate else 'pool_type', None)
        eos = getattr(self.text, 'text_eos_id' if not self.separate else 'eos_id', None)
        start, end = self.frame.start, self.frame.end
        if not (pool == 'argmax' and end[0] == max(*start, self.frame.filler, *end)
                or pool == 'eos' and end[0] == eos):
            return f'it does not pool the end-of-text token (pool_type={pool!r}, eos_id={eos})'
        blocks = getattr(self.text.transformer, 'resblocks', ())
        # Exact types: a subclass or an injected adapter may read its input in another way.
        if not blocks or not all(type(block) is ResidualAttentionBlock
                                 and type(block.attn) is nn.MultiheadAttention
                                 for block in blocks):
            return 'its blocks are not the standard ones of CLIP'
        return None

    def run(self, ids: Tensor, vectors: Tensor) -> Tensor:
        """The tower's own forward with other token embeddings.

        Args:
            ids (Tensor): Say where the text ends, shape (N, context_length).
            vectors (Tensor): Stand in for the embeddings, shape (N, context_length, width).

        Returns:
            Tensor: Shape (N, out_dim), not normalised.
        """
        handle = self.embedding.register_forward_hook(lambda *_: vectors)
        try:
            features = self.text(ids) if self.separate else self.text.encode_text(ids)
        finally:
            handle.remove()
        return features[0] if isinstance(features, tuple) else features

    def run_tokens(self, ids: Tensor, vectors: Tensor, normed: bool = True) -> Tensor:
        """As :meth:`run`, but all states after the last norm, shape (N, context_length, width).

        Args:
            ids (Tensor): As in :meth:`run`.
            vectors (Tensor): As in :meth:`run`.
            normed (bool): False for the states before the last norm. Defaults to True.
        """
        if getattr(self.text, 'cls_emb', None) is not None or not hasattr(self.text, 'ln_final'):
            raise ValueError(
                f'The text tower {type(self.text).__name__} does not tell the states of its '
                'tokens; use an arch with a CLIP text tower, such as ViT-B-32 or ViT-L-14.')
        found: list[Tensor] = []
        handle = self.text.ln_final.register_forward_hook(
            lambda _, inputs, output: found.append(output if normed else inputs[0]))
        try:
            self.run(ids, vectors)
        finally:
            handle.remove()
        return found[0]

    def project(self, states: Tensor) -> Tensor:
        """Last norm and projection of pooled states, (N, width) -> (N, out_dim)."""
        return self.to_joint(self.text.ln_final(states))

    def to_joint(self, states: Tensor) -> Tensor:
        """Projection of states after the last norm, (…, width) -> (…, out_dim)."""
        projection = self.text.text_projection
        if projection is None:
            return states
        return projection(states) if isinstance(projection, nn.Module) else states @ projection


def _causal_mask(mask: Tensor) -> Tensor:
    return torch.full_like(mask, -torch.inf).triu(1)
