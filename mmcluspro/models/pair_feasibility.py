"""How feasible an unseen pair is, from embeddings of the names (Eq. 14)."""
from torch import Tensor
from torch.nn.functional import normalize


def feasibility_scores(attr_emb: Tensor, obj_emb: Tensor, train_pairs: Tensor) -> Tensor:
    r"""Feasibility of every attribute-object pair (Eq. 14).

    .. math::
        \rho(a, o) = \tfrac12 \Big[\max_{o' \ne o,\, (a, o') \in train} \cos(o, o')
            + \max_{a' \ne a,\, (a', o) \in train} \cos(a, a')\Big]

    with -1 for a maximum over nothing.

    Args:
        attr_emb (Tensor): Attribute embeddings, any norm, shape (A, D).
        obj_emb (Tensor): Object embeddings, any norm, shape (O, D').
        train_pairs (Tensor): (attribute, object) of the seen pairs, shape (S, 2).

    Returns:
        Tensor: :math:`\rho` in [-1, 1], shape (A, O).
    """
    attr, obj = train_pairs.to(attr_emb.device).unbind(1)
    by_object = _nearest_partner(obj_emb, obj, attr, len(attr_emb))  # (A, O)
    by_attribute = _nearest_partner(attr_emb, attr, obj, len(obj_emb))  # (O, A)
    return ((by_object + by_attribute.T) / 2).clamp(-1, 1)  # a cosine may be 1 + 1e-7


def _nearest_partner(embedding: Tensor, partner: Tensor, group: Tensor, num: int) -> Tensor:
    """Best cosine of each primitive to the *other* partners of each group, shape (num, n)."""
    if not embedding.isfinite().all():
        raise ValueError('feasibility needs finite embeddings, got NaN or infinity.')
    unit = normalize(embedding.float(), dim=1)
    cosine = (unit @ unit.T).clamp(-1, 1).fill_diagonal_(-1)
    best = cosine.new_full((num, len(embedding)), -1)
    return best.scatter_reduce_(0, group[:, None].expand(-1, len(unit)), cosine[partner], 'amax')
