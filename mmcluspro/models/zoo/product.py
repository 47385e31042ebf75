"""Shared parts of KG-SP and SymNet, which predict attribute and object separately."""
from collections.abc import Sequence

from torch import Tensor

from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads.base import CompositionHead
from mmcluspro.models.structures import Features, Logits, Scores, Texts, TrainStep, as_features


class ProductHead(CompositionHead):
    """Scores are log p(a) + log p(o). A child gives ``primitive_logits``.

    Args:
        *args: ``space`` and ``text`` of :class:`CompositionHead`.
        **kwargs: As in :class:`CompositionHead`.
    """

    link = 'identity'

    def primitive_logits(self, features: Features, candidates: Candidates) -> tuple[Tensor, Tensor]:
        """Logits of the attributes (B, A) and objects (B, O) of candidates."""
        raise NotImplementedError

    def score(self, feats: Features | Sequence[Tensor], candidates: Candidates) -> Scores:
        """log p(a) + log p(o), each over the attributes or objects of the candidates.

        Args:
            feats (Features): Of B images.
            candidates (Candidates): What can be answered.
        """
        candidates = candidates.to(self.device)
        logits = self.primitive_logits(as_features(feats), candidates)
        attr, obj = (part.float().log_softmax(dim=1) for part in logits)
        return Scores(_sum(attr, obj, candidates), attr.exp(), obj.exp())

    def step(self, features: Features, labels: dict[str, Tensor]) -> TrainStep:
        """Logits of attributes and objects, and of the seen pairs; there are no texts of pairs."""
        candidates = self.train_candidates
        attr, obj = self.primitive_logits(features, candidates)
        pair = _sum(attr.log_softmax(dim=1), obj.log_softmax(dim=1), candidates)
        texts = Texts(None, None, pair.new_zeros(len(candidates), 0))
        return TrainStep(features, texts, Logits(attr, obj, pair), labels, candidates)

    def trained(self, logits: Tensor, kind: str, candidates: Candidates) -> Tensor:
        """The columns of candidates of a classifier with a column for each trained name.

        Args:
            logits (Tensor): Shape (B, n).
            kind (str): 'attribute' or 'object'.
            candidates (Candidates): What can be answered.
        """
        if candidates.all_names:
            return logits
        places = getattr(candidates, f'text_{kind}s')
        new = [name for name, place in zip(getattr(candidates, f'{kind}s'), places.tolist())
               if place >= logits.shape[1]]
        if new:
            raise ValueError(
                f'{type(self).__name__} has a classifier of the {logits.shape[1]} {kind}s that it '
                f'was trained with and cannot answer {", ".join(map(repr, new[:5]))}: leave these '
                f'{kind}s out, or use a method that composes word vectors, such as CompCos.')
        return logits[:, places]


def _sum(attr: Tensor, obj: Tensor, candidates: Candidates) -> Tensor:
    return attr[:, candidates.pairs[:, 0]] + obj[:, candidates.pairs[:, 1]]
