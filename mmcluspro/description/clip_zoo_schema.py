"""The methods of the zoo on CLIP's towers in the closed schema, as in :mod:`.zoo_schema`."""
from __future__ import annotations

from typing import Any

from .fields import Check, Refusal, choice, flag, integer, items, number, optional, shown, text
from .zoo_schema import FEASIBILITY, TRAINING, WIDTH, Entry

REDUCTION = integer(1, 1024)


def template(value: Any, where: str) -> str:
    """A sentence with ``{0}`` and ``{1}``; other fields of ``str.format`` could fill gigabytes."""
    found = text()(value, where)
    if {'{', '}'} & {*found.replace('{0}', '').replace('{1}', '')}:
        raise Refusal(f'{where} must have no other brackets than {{0}} and {{1}}, '
                      f'got {shown(value)}')
    return found


def backbones(vision: dict[str, Check]) -> dict[str, Entry]:
    """The image towers.

    Args:
        vision (dict): Fields of ``CLIPVision``.
    """
    plain = {name: check for name, check in vision.items()
             if name not in ('peft', 'out_tokens', 'out_layers', 'project_layers')}
    return {'CAILAVision': Entry(dict(
        plain, reduction=REDUCTION, mixture_from=optional(integer(0, 255)), norms=flag),
        (), ('with_cp', 'peft'))}


def prompts(soft: dict[str, Check]) -> dict[str, Entry]:
    """The prompts.

    Args:
        soft (dict): Fields of ``SoftPrompt``.
    """
    return {'GraphPrompt': Entry(dict(soft, hidden=integer(1, 32768), residual=flag), (),
                                 ('attr_dropout', 'graph_dropout'))}


def texts(side: dict[str, Check]) -> dict[str, Entry]:
    """The text sides.

    Args:
        side (dict): Fields of ``CLIPText``.
    """
    training = ('with_cp', 'learn_temperature', 'chunk_size')
    return {
        'CAILAText': Entry(dict(side, reduction=REDUCTION, norms=flag), (), training),
        # No field for a file of descriptions: such a model predicts with its config.
        'PLIDText': Entry(dict(side, num_texts=integer(1, 1000),
                               templates=items(template, 1, 1000)), (),
                          (*training, 'attn_dropout')),
    }


def heads(side: Check) -> dict[str, Entry]:
    """The heads.

    Args:
        side (Check): What ``text`` may be.
    """
    common: dict[str, Check] = dict(
        text=side, fusion=choice('probability', 'logits', 'composition'), feasibility=FEASIBILITY)
    return {
        'CAILAHead': Entry(common, ('text', ), (*TRAINING, 'img_dropout')),
        'CDSHead': Entry(dict(common, in_channels=WIDTH, gamma=number(0, 2)),
                         ('text', 'in_channels'),
                         (*TRAINING, 'num_clusters', 'specificity_weight')),
        'CPFHead': Entry(dict(common, in_channels=WIDTH, shallow=integer(1, 256)),
                         ('text', 'in_channels'), TRAINING),
        'DFSPHead': Entry(dict(common, in_channels=WIDTH, direction=choice('t2i', 'i2t', 'BiF'),
                               weight=number(0, 1)), ('text', 'in_channels'),
                          (*TRAINING, 'dropout', 'prompt_weight', 'chunk_size')),
        'GIPCOLHead': Entry(common, ('text', ), TRAINING),
        'MSCIHead': Entry(dict(common, in_channels=WIDTH, low=integer(1, 256),
                               high=integer(1, 256)), ('text', 'in_channels'),
                          (*TRAINING, 'dropout', 'scale', 'chunk_size', 'with_cp')),
        'PCVLHead': Entry(common, ('text', ), TRAINING),
        'PLIDHead': Entry(dict(common, beta=items(number(1e-6, 1e6), 2, 2)), ('text', ),
                          (*TRAINING, 'smoothing', 'group_objects')),
        'TOMCATHead': Entry(dict(
            common, test_time=flag, capacity=integer(1, 100), alpha=number(0, 1e6),
            beta=number(0, 1e6), theta=number(0, 1e6), test_lr=number(0, 1e6),
            test_decay=number(0, 1e6), test_eps=number(1e-12, 1e6), align_weight=number(0, 1e6)),
            ('text', ), TRAINING),
    }


# The names alone, for the tables that are made before there is a schema.
BACKBONES, PROMPTS, TEXTS, HEADS = (
    tuple(part) for part in (backbones({}), prompts({}), texts({}), heads(flag)))
TRAINING_FIELDS = {kind: entry.training
                   for table in (backbones({}), prompts({}), texts({}), heads(flag))
                   for kind, entry in table.items()}
TOWERS = ('CLIPVision', 'CLIPText', *BACKBONES, *TEXTS)  # that name a CLIP and its weights
