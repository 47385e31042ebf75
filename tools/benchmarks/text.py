"""Prefix-tree text encoding against whole sequences of 8 tokens, both measured in the same run.

A random ViT-B/32-size text tower and C-GQA-like pairs (13.5 for each attribute that occurs). The
reference is open_clip's transformer on ``[SOS a photo of attribute object EOS pad]`` for every
pair, in the same chunks. Both take turns, the best time counts; it is CPU time, which other load on
the machine disturbs less.

Memory is what autograd keeps for backward: the bytes of all different storages that pass through
``saved_tensors_hooks``, without the weights. Unlike the resident size of the process it is exact,
does not depend on the allocator, and is what fills a GPU in training.

Usage: python tools/benchmarks/text.py [--pairs 1024] [--chunk-size 512] [--arch ViT-B-32]
"""
import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from mmcluspro.models.text import CLIPText

NUM_TOKENS = 8
PAIRS_PER_ATTRIBUTE = 5592 / 413


def whole_sequences(text: CLIPText, pairs: Tensor) -> Tensor:
    """Features of pairs from whole sequences, shape (P, out_dim)."""
    tower = text.tower.text
    contexts, attributes, objects = text.prompt()
    start, end = (text.tower.vectors(ids) for ids in (text.tower.frame.start,
                                                      text.tower.frame.end[:1]))
    root = torch.cat([start, contexts['composition']])
    pad = end.new_zeros(NUM_TOKENS - len(root) - 3, end.shape[1])
    features = []
    for attr, obj in (chunk.unbind(1) for chunk in pairs.split(text.chunk_size)):
        shared = [part.expand(len(attr), -1, -1) for part in (root, end, pad)]
        tokens = torch.cat([shared[0], attributes[attr][:, None], objects[obj][:, None],
                            *shared[1:]], dim=1)
        states = tower.transformer(tokens + tower.positional_embedding[:NUM_TOKENS],
                                   attn_mask=tower.attn_mask[:NUM_TOKENS, :NUM_TOKENS])
        features.append(text.tower.project(states[:, len(root) + 2]))
    return normalize(torch.cat(features), dim=-1)


def forward(encode: Callable[[Tensor], Tensor], pairs: Tensor, text: CLIPText) -> Tensor:
    text.forget()  # it is the encoding that is measured, not the cache
    with torch.no_grad():
        return encode(pairs)


def gradients(encode: Callable[[Tensor], Tensor], pairs: Tensor, weight: Tensor,
              parameters: list[Tensor]) -> list[Tensor]:
    loss = (encode(pairs) * weight).sum()
    return list(torch.autograd.grad(loss, parameters))


def kept_for_backward(encode: Callable[[Tensor], Tensor], pairs: Tensor, text: CLIPText) -> int:
    """Bytes that autograd keeps, weights apart."""
    weights = {p.untyped_storage().data_ptr() for p in text.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        encode(pairs)
    return sum(kept.values())


def take_turns(functions: list[Callable[[], object]], repeats: int) -> list[float]:
    times = [float('inf')] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            begin = time.process_time()
            function()
            times[i] = min(times[i], time.process_time() - begin)
    return times


def largest_difference(mine: Tensor, theirs: Tensor) -> float:
    return float((mine - theirs).abs().max() / theirs.abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or '').split('\n')[0])
    parser.add_argument('--arch', default='ViT-B-32')
    parser.add_argument('--quickgelu', action='store_true', help='the activation of OpenAI')
    parser.add_argument('--pairs', type=int, default=1024)
    parser.add_argument('--objects', type=int, default=674)
    parser.add_argument('--chunk-size', type=int, default=512)
    parser.add_argument('--repeats', type=int, default=3)
    parser.add_argument('--threads', type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    num_attributes = max(1, round(args.pairs / PAIRS_PER_ATTRIBUTE))
    text = CLIPText([f'attribute {i}' for i in range(num_attributes)],
                    [f'object {i}' for i in range(args.objects)], arch=args.arch,
                    chunk_size=args.chunk_size, quickgelu=args.quickgelu or None).train()
    everything = torch.cartesian_prod(torch.arange(num_attributes), torch.arange(args.objects))
    pairs = everything[torch.randperm(len(everything))[:args.pairs].sort().values]
    parameters = [text.prompt.contexts['composition'], text.prompt.attributes.vectors,
                  text.prompt.objects.vectors]
    weight = torch.randn(len(pairs), text.out_dim)
    ways = {'whole': lambda pairs: whole_sequences(text, pairs), 'tree': text.encode_pairs}
    print(f'{args.arch} text tower, {len(pairs)} pairs of {num_attributes} attributes and '
          f'{args.objects} objects, chunks of {args.chunk_size}, {args.threads} thread(s)')

    whole, tree = (forward(way, pairs, text) for way in ways.values())
    print(f'largest difference of unit-norm features {float((tree - whole).abs().max()):.1e}')
    whole_grads, tree_grads = (gradients(way, pairs, weight, parameters) for way in ways.values())
    for name, mine, theirs in zip(('context', 'attributes', 'objects'), tree_grads, whole_grads):
        print(f'largest difference of gradients, {name}: {largest_difference(mine, theirs):.1e} '
              'of the largest')

    for name, run in (
            ('forward', lambda way: forward(way, pairs, text)),
            ('forward + backward', lambda way: gradients(way, pairs, weight, parameters))):
        slow, fast = take_turns([lambda way=way, run=run: run(way) for way in ways.values()],
                                args.repeats)
        print(f'{name}: whole sequences {slow:.2f} s, prefix tree {fast:.2f} s: '
              f'{slow / fast:.2f}x (target 3x)')

    whole_bytes, tree_bytes = (kept_for_backward(way, pairs, text) for way in ways.values())
    text.with_cp = True
    cp_bytes = kept_for_backward(text.encode_pairs, pairs, text)
    cp_time, = take_turns(
        [lambda: gradients(text.encode_pairs, pairs, weight, parameters)], args.repeats)
    print(f'kept for backward: whole sequences {whole_bytes / 1e6:.0f} MB, prefix tree '
          f'{tree_bytes / 1e6:.0f} MB: {whole_bytes / tree_bytes:.2f}x '
          f'({tree_bytes / len(pairs) / 1e3:.0f} kB a pair)')
    print(f'with_cp=True: {cp_bytes / 1e6:.0f} MB, then one chunk at a time in backward; '
          f'forward + backward {cp_time:.2f} s')


if __name__ == '__main__':
    main()
