"""CLIP's text side: trained prompts inside a frozen tower (Eq. 2)."""
from collections.abc import Sequence
from typing import Annotated

import torch
from mmengine.logging import print_log
from torch import Tensor
from torch.nn import functional as F

from mmcluspro.fields import Part, Unsaved
from mmcluspro.models.clip import load_clip
from mmcluspro.models.sources import Arch, ClipWeights, FileWeights
from mmcluspro.models.state import declare_restorable
from mmcluspro.models.structures import PATHS, TextTokens
from mmcluspro.registry import MODELS
from mmcluspro.utils.device import free_bytes, upload

from .encoder import PairMemo, Readable, TextEncoder, check_pairs
from .prompts import (
    PromptEncoder,
    PromptParts,
    PromptPlan,
    SoftPrompt,
    TokenEncoder,
    TreeEncoder,
    WholeEncoder,
    encode_prompts,
    plan_names,
    plan_pairs,
)
from .tokenizer import get_tokenizer
from .tower import TextTower

LARGEST = 1024  # more makes no device faster that we know of
SHARE = 0.25  # of the free memory
FLOATS = 16  # per token, layer and channel; measured, see tests/test_models/test_text_chunk.py


def prompt_bytes(tokens: int, width: int, layers: int, keeps: bool) -> int:
    """Bytes that a prompt needs while its chunk runs.

    Args:
        tokens (int): Of the segment that is run for each prompt.
        width (int): Of the tower.
        layers (int): Of the tower.
        keeps (bool): Whether the activations of all layers are kept for backward.
    """
    return 4 * FLOATS * width * tokens * (layers if keeps else 1)


def fitting_chunk(bytes_per_prompt: int, device: torch.device) -> int:
    """The largest power of two, at most :data:`LARGEST`, that fits a share of the free memory.

    Powers of two, because other sizes may round differently: the same machine should choose the
    same size again.
    """
    fits = int(SHARE * free_bytes(device)) // max(bytes_per_prompt, 1)
    return min(LARGEST, 1 << max(fits, 1).bit_length() - 1)


PLAIN_CONTEXT = 'a photo of'
KEPT_LISTS = 4  # of sentences


@MODELS.register_module()
class CLIPText(TextEncoder):
    """Features of attributes, objects and pairs from a frozen CLIP text tower.

    Args:
        attributes (Sequence[str]): Raw names.
        objects (Sequence[str]): Raw names.
        arch (str): An open_clip architecture or 'tiny_clip'. Defaults to 'ViT-L-14'.
        pretrained (str | None): Weights as in :func:`load_clip`. Defaults to None (random).
        prompt (dict): Config of the prompts. Defaults to ``dict(type='mmcluspro.SoftPrompt')``.
        chunk_size (int, optional): Number of prompts that run together. Defaults to None: 1024, or
            fewer if memory is short (:mod:`.chunk`).
        with_cp (bool): Recompute the activations of a chunk in the backward pass. This takes about
            50% more time and needs the memory of one chunk. Defaults to False.
        prefix_tree (bool): Encode shared prefixes only once. For towers in which this is not exact,
            whole sequences are encoded automatically. Defaults to True.
        readable (dict | callable | str | None): Overrides of the readable names, see
            :func:`mmcluspro.datasets.resolve_readable`. Defaults to None.
        learn_temperature (bool): Train ``logit_scale``. Defaults to False.
        quickgelu (bool | None): As in :func:`load_clip`. Defaults to None.
        tokenizer (str, optional): File ``tokenizer.json`` or a sentencepiece ``.model``, for
            architectures whose tokenizer would be downloaded. Defaults to None.

    Attributes:
        logit_bias (Tensor | None): What towers trained with a sigmoid (SigLIP) add to scaled
            cosines; softmax does not see it.
    """

    def __init__(self, attributes: Unsaved[Sequence[str]], objects: Unsaved[Sequence[str]],
                 arch: Arch = 'ViT-L-14', pretrained: ClipWeights = None,
                 prompt: Annotated[dict | None, Part((SoftPrompt, ), SoftPrompt)] = None,
                 chunk_size: Unsaved[int | None] = None, with_cp: Unsaved[bool] = False,
                 prefix_tree: bool = True, readable: Readable = None,
                 learn_temperature: Unsaved[bool] = False, quickgelu: bool | None = None,
                 tokenizer: FileWeights = None) -> None:
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f'text.chunk_size must be at least 1, or None, got {chunk_size}.')
        model = load_clip(arch, pretrained, quickgelu=quickgelu, half='text')
        tower = TextTower(model, get_tokenizer(arch, tokenizer))
        if pretrained is not None:
            declare_restorable(tower)
        super().__init__(attributes, objects, tower.out_dim, model.logit_scale,
                         learn_temperature, readable)
        self.tower = tower
        bias = getattr(model, 'logit_bias', None)
        self.register_buffer('logit_bias', None if bias is None else bias.detach().reshape(()))
        self.prompt = MODELS.build({
            'type': 'mmcluspro.SoftPrompt', **(prompt or {}), 'embed': tower.embed,
            'max_tokens': tower.context_length - len(tower.frame.start) - 1,
            'attributes': [self.readable(name) for name in attributes],
            'objects': [self.readable(name) for name in objects]})
        self.chunk_size = chunk_size
        self.with_cp = with_cp
        reason = tower.why_no_tree()
        if reason and prefix_tree:
            print_log(f'CLIPText encodes whole sequences, since the prefix tree is not exact for '
                      f'the text tower of {arch}: {reason}.', 'current')
        self.prefix_tree = prefix_tree and reason is None
        self._plans: PairMemo[PromptPlan] = PairMemo(3)
        self._name_plans: dict[tuple[str, torch.device], PromptPlan] = {}
        self._sentences: dict[tuple[str, ...], Tensor] = {}
        self._chunks: dict[tuple, int] = {}

    def parts(self) -> PromptParts:
        return self.prompt()

    def embed(self, path: str, parts: PromptParts, pairs: Tensor | None) -> Tensor:
        nodes = parts.attributes if path == 'composition' else None
        leaves = parts.attributes if path == 'attribute' else parts.objects
        return encode_prompts(self.encoder(path), self._plan(path, pairs), parts.contexts[path],
                              nodes, leaves, self.chunk(), self.with_cp)

    def encoder(self, path: str | None = None) -> PromptEncoder:
        """How the prompts of a path are encoded; None is for texts without anything trained."""
        return (TreeEncoder if self.prefix_tree else WholeEncoder)(self.tower)

    def encode_tokens(self, pairs: Tensor) -> TextTokens:
        """States of all tokens of the prompts of pairs (P, 2), cached if nothing is trained."""
        check_pairs(pairs)

        def compute() -> Tensor:
            parts = self.parts()
            return encode_prompts(
                TokenEncoder(self.tower), self._plan('composition', pairs),
                parts.contexts['composition'], parts.attributes, parts.objects,
                self.chunk(whole=True), self.with_cp)

        if self._is_constant():
            self.cache.validate(self)
            states = self.cache.get_tokens(pairs, self.for_cache(compute))
        else:
            states = compute()
        lengths = [upload(table.lengths, states.device)
                   for table in (self.prompt.attributes, self.prompt.objects)]
        used = (len(self.tower.frame.start) + len(next(iter(self.prompt.contexts.values()))) + 1
                + lengths[0][pairs[:, 0]] + lengths[1][pairs[:, 1]])
        place = torch.arange(states.shape[1], device=states.device)
        return TextTokens(states, place < used[:, None])

    def project(self, states: Tensor) -> Tensor:
        """Token states (…, width) to the joint space, (…, out_dim), not normalised."""
        return self.tower.to_joint(states)

    @torch.no_grad()
    def pretrained(self, names: Sequence[str]) -> Tensor:
        """Features of ``a photo of <name>`` with the tokens of each readable name, (n, out_dim)."""
        return self._plain([self.readable(name) for name in names],
                           self.tower.embed([PLAIN_CONTEXT])[0])

    def encode_sentences(self, sentences: Sequence[str]) -> Tensor:
        """Features of whole sentences, such as descriptions of pairs, shape (n, out_dim).

        Nothing is trained here, so the features of the last few lists are cached. They have unit
        norm where all features have.

        Args:
            sentences (Sequence[str]): Texts for CLIP's tokenizer.
        """
        key = tuple(sentences)
        if key not in self._sentences:
            if len(self._sentences) == KEPT_LISTS:
                self._sentences.pop(next(iter(self._sentences)))
            found = self.for_cache(lambda: self._plain(key))().float()
            self._sentences[key] = F.normalize(found, dim=-1) if self.unit_norm else found
        return self._sentences[key]

    def _plain(self, texts: Sequence[str], context: Tensor | None = None) -> Tensor:
        """Features of texts after a context, with nothing that was trained, of any norm."""
        runs = self.tower.embed(texts)
        context = runs[0][:0] if context is None else context
        room = self.tower.context_length - len(self.tower.frame.start) - 1 - len(context)
        for text, run in zip(texts, runs):
            if not 0 < len(run) <= room:
                raise ValueError(f'The text tower reads texts of 1 to {room} tokens, got '
                                 f'{len(run)}: {text!r}.')
        plan = plan_names([len(run) for run in runs], self.logit_scale.device)
        return encode_prompts(self.encoder(), plan, context, None, torch.cat(runs), self.chunk())

    def extend(self, attributes: Sequence[str] = (), objects: Sequence[str] = ()) -> None:
        """Appends names that were not trained.

        They get the vectors that they would have at the start of training. :meth:`restore` removes
        them.

        Args:
            attributes (Sequence[str]): Raw names. Defaults to ().
            objects (Sequence[str]): Raw names. Defaults to ().
        """
        self._check_new(attributes, objects)
        self.prompt.extend([self.readable(name) for name in attributes],
                           [self.readable(name) for name in objects], self.tower.embed)
        self.attributes += tuple(attributes)
        self.objects += tuple(objects)
        self.forget()

    def restore(self) -> None:
        """Removes the names that were added."""
        self.prompt.restore()
        self.attributes = self.attributes[:len(self.prompt.attributes.lengths)]
        self.objects = self.objects[:len(self.prompt.objects.lengths)]
        self.forget()

    def forget(self) -> None:
        super().forget()
        self._plans.clear()
        self._name_plans.clear()
        self._sentences.clear()
        self._chunks.clear()

    @torch.compiler.disable  # asks the system
    def chunk(self, whole: bool = False) -> int:
        """Number of prompts that run together, chosen once per mode and device.

        Args:
            whole (bool): Whether whole sequences run, as without the prefix tree. Defaults to
                False.
        """
        if self.chunk_size is not None:
            return self.chunk_size
        whole = whole or not self.prefix_tree
        key = self.logit_scale.device, torch.is_grad_enabled(), whole
        if key not in self._chunks:
            tokens = (self.tower.context_length if whole else 1 + max(
                *self.prompt.attributes.lengths, *self.prompt.objects.lengths))
            layers = len(getattr(getattr(self.tower.text, 'transformer', None), 'resblocks', ()))
            self._chunks[key] = fitting_chunk(prompt_bytes(
                tokens, self.tower.embedding.embedding_dim, layers or 12, key[1]), key[0])
        return self._chunks[key]

    def prepare(self, pairs: Tensor) -> None:
        """Plans the prompts of pairs (P, 2) and of all names: reads indices, computes nothing."""
        for path in PATHS:
            self._plan(path, pairs)

    @torch.compiler.disable  # lengths and indices of the prompts, no maths
    @torch.inference_mode(False)  # training may use a plan that was made in serving
    def _plan(self, path: str, pairs: Tensor | None) -> PromptPlan:
        device = self.logit_scale.device
        attributes, objects = self.prompt.attributes.lengths, self.prompt.objects.lengths
        if path != 'composition' or pairs is None:
            key = path, device
            if key not in self._name_plans:  # making one waits for the device
                self._name_plans[key] = plan_names(
                    attributes if path == 'attribute' else objects, device)
            return self._name_plans[key]

        def compute() -> PromptPlan:
            self._check_range(pairs)
            return plan_pairs(pairs.to(device), attributes, objects)

        return self._plans.get(pairs, compute)
