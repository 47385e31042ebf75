"""KG-SP: two independent classifiers, and outside knowledge of which pairs are feasible."""
from typing import Annotated, Any

from torch import Tensor, nn
from torch.nn import functional as F

from mmcluspro.datasets import CompositionSpace
from mmcluspro.fields import Part, Unsaved, Width
from mmcluspro.models.candidates import Candidates
from mmcluspro.models.heads.base import Feasibility
from mmcluspro.models.structures import Features, TrainStep
from mmcluspro.models.text.encoder import TextEncoder
from mmcluspro.registry import MODELS

from .common import ProductHead


@MODELS.register_module()
class KGSPHead(ProductHead):
    """KG-SP (Karthik et al., "Knowledge Guided Simple Primitives", CVPR 2022).

    Each primitive has an MLP of its own (the neck) and a linear classifier:

        p(a|x) = softmax(W_a f_a),  p(o|x) = softmax(W_o f_o),  score = p(a|x) p(o|x)
        L = CE(W_a f_a, a) + CE(W_o f_o, o)

    In the open world, pairs are dropped by the relatedness of attribute and object in ConceptNet,
    the cosine of their vectors (``feasibility='relatedness'``). The text side holds the word
    vectors that this needs, and nothing in it learns. New names are refused: they have no
    classifier.

    Args:
        space (CompositionSpace | dict): As in :class:`~mmcluspro.models.heads.CompositionHead`.
        text (dict): As there.
        in_channels (int): Width of f_a and f_o.
        feasibility (str): As in :class:`~mmcluspro.models.heads.CompositionHead`. Defaults to
            'relatedness'.
        **kwargs: As in :class:`~mmcluspro.models.heads.CompositionHead`.
    """

    def __init__(self, space: Unsaved[CompositionSpace | dict],
                 text: Annotated[dict, Part((TextEncoder, ))], in_channels: Width,
                 feasibility: Feasibility = 'relatedness', **kwargs: Any) -> None:
        super().__init__(space, text, feasibility=feasibility, **kwargs)
        self.attr_classifier = nn.Linear(in_channels, len(self.space.attributes))
        self.obj_classifier = nn.Linear(in_channels, len(self.space.objects))

    def primitive_logits(self, features: Features, candidates: Candidates) -> tuple[Tensor, Tensor]:
        if features.attribute is None or features.object is None:
            raise ValueError("KGSPHead needs features of attribute and object: set model.neck, for "
                             "example mmcluspro.PathEmbedder with paths=['attribute', 'object'].")
        return (self.trained(self.attr_classifier(features.attribute), 'attribute', candidates),
                self.trained(self.obj_classifier(features.object), 'object', candidates))

    def terms(self, step: TrainStep) -> dict[str, Tensor]:
        """Cross-entropy of both classifiers."""
        return {f'{name}_loss': F.cross_entropy(logits, step.labels[name])
                for name, logits in zip(('attr', 'obj'), step.logits) if logits is not None}
