"""The methods of the zoo in the closed schema: one entry per class.

Each entry is the fields that prediction needs, the fields that must be there, and the fields that
only training uses, which a description leaves out.
"""
from __future__ import annotations

from typing import NamedTuple

from .fields import Check, choice, flag, integer, items, mapping, number, optional, text

WIDTH = integer(1, 8192)
WIDTHS = items(WIDTH, 0, 16)
READABLE: Check = optional(lambda value, where: (
    choice('words', 'dots') if isinstance(value, str) else mapping(text(), text()))(value, where))
WORDS: dict[str, Check] = dict(
    out_dim=optional(WIDTH), temperature=number(1e-6, 1e6), chunk_size=integer(1, 1 << 24),
    readable=READABLE)
WORDS_TRAINING = ('path', 'dropout', 'learn_vectors', 'learn_temperature', 'chunk_size')
FEASIBILITY = choice('pretrained', 'trained', 'relatedness')
TRAINING = ('loss_weights', 'losses', 'space')


class Entry(NamedTuple):
    """A class of the zoo."""

    fields: dict[str, Check]
    needed: tuple[str, ...] = ()
    training: tuple[str, ...] = ()


NECKS: dict[str, Entry] = {
    'PathEmbedder': Entry(dict(
        in_channels=WIDTH, out_channels=WIDTH, hidden=WIDTHS, norm=flag, last_act=flag,
        paths=items(choice('attribute', 'object', 'composition'), 1, 3)),
        ('in_channels', 'out_channels'), ('dropout', )),
    'CANetNeck': Entry(dict(in_channels=WIDTH, out_channels=WIDTH, hidden=optional(WIDTH)),
                       ('in_channels', 'out_channels'), ('dropout', )),
    'OADisNeck': Entry(dict(in_channels=WIDTH, hidden=WIDTH, out_channels=WIDTH),
                       ('in_channels', 'hidden', 'out_channels'), ('dropout', )),
    'SCENNeck': Entry(dict(in_channels=WIDTH, out_channels=WIDTH, hidden=WIDTH),
                      ('in_channels', 'out_channels'), ('dropout', )),
}
# Text sides on word vectors: `--weights words=FILE` gives them the file again.
TEXTS: dict[str, Entry] = {
    'WordTableText': Entry(WORDS, (), WORDS_TRAINING),
    'CAPEText': Entry(dict(WORDS, num_heads=integer(1, 256), hidden_dim=WIDTH), (),
                      (*WORDS_TRAINING, 'hidden_dropout')),
    'GraphText': Entry(dict(WORDS, hidden_dims=WIDTHS), (), (*WORDS_TRAINING, 'last_dropout')),
    'AoPText': Entry(WORDS, (), WORDS_TRAINING),
    'LinearPairText': Entry(WORDS, (), WORDS_TRAINING),
    'LEPlusText': Entry(dict(WORDS, hidden=WIDTHS), (), WORDS_TRAINING),
    'VariationalGraphText': Entry(
        dict(WORDS, node_dim=WIDTH, hidden_dim=WIDTH, pair_dim=WIDTH), (), WORDS_TRAINING),
}


def heads(side: Check) -> dict[str, Entry]:
    """The heads.

    Args:
        side (Check): What ``text`` may be.
    """
    common: dict[str, Check] = dict(text=side, feasibility=FEASIBILITY)
    nodes = choice('known', 'seen', 'all')
    sizes: dict[str, Check] = dict(common, in_channels=WIDTH, dim=WIDTH)
    return {
        'CANetHead': Entry(dict(sizes, alpha=number(0, 1)), ('text', 'in_channels', 'dim'),
                           (*TRAINING, 'dropout')),
        'CGEHead': Entry(dict(common, nodes=nodes), ('text', ), TRAINING),
        'CVGAEHead': Entry(common, ('text', ), (
            *TRAINING, 'pair_weight', 'image_weight', 'recon_weight')),
        'CoCGEHead': Entry(dict(common, nodes=optional(nodes), world=choice('closed', 'open')),
                           ('text', ), (*TRAINING, 'margin', 'margin_epochs')),
        'OADisHead': Entry(sizes, ('text', 'in_channels', 'dim'),
                           (*TRAINING, 'sharpness', 'weights')),
        'SCENHead': Entry(common, ('text', ),
                          (*TRAINING, 'aux_weight', 'contrast_weight', 'margin')),
        'ADEHead': Entry(dict(
            common, in_channels=WIDTH, out_channels=WIDTH, dim=optional(WIDTH), hidden=WIDTHS,
            num_heads=integer(1, 256), num_tokens=integer(1, 4096)),
            ('text', 'in_channels', 'out_channels'),
            (*TRAINING, 'dropout', 'emd_weight', 'epsilon')),
        'AoPHead': Entry(common, ('text', ), (
            *TRAINING, 'margin', 'aux_weight', 'comm_weight', 'inv_weight')),
        'CompCosHead': Entry(common, ('text', ), (*TRAINING, 'margin', 'margin_epochs')),
        'KGSPHead': Entry(dict(common, in_channels=WIDTH), ('text', 'in_channels'), TRAINING),
        'LEPlusHead': Entry(common, ('text', ), (*TRAINING, 'margin')),
        'SymNetHead': Entry(dict(common, in_channels=WIDTH, hidden=WIDTH, coupling_hidden=WIDTH),
                            ('text', 'in_channels'), (*TRAINING, 'dropout')),
        'TMNHead': Entry(dict(
            common, in_channels=WIDTH, num_layers=integer(1, 64), num_modules=integer(1, 1024),
            width=WIDTH, gate_width=WIDTH), ('text', 'in_channels'),
            (*TRAINING, 'num_negatives', 'chunk_size')),
    }


# The names alone, for the tables that are made before there is a schema.
HEADS = tuple(heads(flag))
TRAINING_FIELDS = {kind: entry.training
                   for table in (NECKS, TEXTS, heads(flag)) for kind, entry in table.items()}
