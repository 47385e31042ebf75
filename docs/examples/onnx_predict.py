"""Tags pictures without torch: python onnx_predict.py MODEL.onnx TABLE.npz PICTURE…"""
import argparse
import json

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def open_image(path, background):  # sixteen bits: the upper eight; transparent: on a colour
    image = ImageOps.exif_transpose(Image.open(path))
    if image.mode[0] == 'I':
        grey = np.asarray(image).astype(int)
        grey = np.clip(grey >> 8 if grey.max() > 255 else grey, 0, 255)
        image = Image.fromarray(grey.astype(np.uint8))
    elif background and (image.mode in ('RGBA', 'LA', 'PA') or 'transparency' in image.info):
        pixels = np.asarray(image.convert('RGBA')).astype(np.float32)
        alpha = pixels[..., 3:] / 255
        mixed = pixels[..., :3] * alpha + np.float32(background) * (1 - alpha)
        image = Image.fromarray(np.rint(mixed).astype(np.uint8))
    return image.convert('RGB')

def read_image(path, resize, size, interpolation, background=(255,) * 3, squash=False, **_):
    image = open_image(path, background)  # what follows the cut happens inside the graph
    edges = [int(resize * edge / (edge if squash else min(image.size))) for edge in image.size]
    image = image.resize(edges, Image.Resampling[interpolation.upper()])
    x, y = (round((edge - size) / 2) for edge in edges)
    return np.asarray(image)[y:y + size, x:x + size]

def softmax(x):
    return (x := np.exp(x - x.max(1, keepdims=True))) / x.sum(1, keepdims=True)

def logsumexp(x):
    most = x.max(1, keepdims=True)
    return most + np.log(np.exp(x - most).sum(1, keepdims=True))

def add_evidence(pair, features, table, weight):  # ClusPro+: seen pairs against their prototypes
    known = table['pair_a'].any(1)
    old = pair[:, known]
    new = old + weight * sum(f @ table[name][known].T
                               for f, name in zip(features, ('pair_a', 'pair_o')))
    pair[:, known] = new + logsumexp(old) - logsumexp(new)
    return pair

def pair_scores(features, table, info):  # Eq. 13; features: f_a, f_o and f_c, or f_c alone
    texts = [table['text_a'], table['text_o'], table['text_c']][-len(features):]
    *primitives, pair = (info['scale'] * f @ text.T for f, text in zip(features, texts))
    if info.get('evidence'):
        pair = add_evidence(pair, features, table, info['scale'] * info['evidence'])
    parts = [softmax(x)[:, index] for x, index in zip(primitives, table['pairs'].T)]
    pair = pair if info['fusion'] == 'logits' else softmax(pair)
    return pair + np.prod(parts, axis=0) if parts else pair

def probabilities(scores, table, info):  # temperature and seen bias were chosen on validation
    z = scores if info['link'] == 'identity' else np.log(np.maximum(scores.astype(float), 2**-150))
    z = (z - info['seen_bias'] * table['seen']) / info['temperature']
    return softmax(np.where(table['feasible'], z, -np.inf))

if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__)
    for name, count in (('model', None), ('table', None), ('pictures', '+')):
        parser.add_argument(name, nargs=count)
    parser.add_argument('--prefer', choices=['seen', 'unseen'], help='pairs that matter more')
    parser.add_argument('--seen-bias', type=float, help='subtracted from log scores of seen pairs')
    args = parser.parse_args()
    try:
        session = onnxruntime.InferenceSession(args.model, providers=['CPUExecutionProvider'])
    except Exception as error:  # onnxruntime's errors have no other base
        raise SystemExit(f'error: {args.model} cannot be opened: {error}') from None
    info = json.loads(str((table := np.load(args.table))['info']))
    assert session.get_modelmeta().custom_metadata_map['weights'] == info['weights'], 'not a pair'
    if args.prefer:
        info['seen_bias'] = info['calibration'][info['world']][f'prefer_{args.prefer}']
    elif args.seen_bias is not None:
        info['seen_bias'] = args.seen_bias
    images = np.stack([read_image(path, **info['preprocessing']) for path in args.pictures])
    scores = pair_scores(session.run(None, {'image': images}), table, info)
    for path, row in zip(args.pictures, probabilities(scores, table, info)):
        a, o = table['pairs'][row.argmax()]
        print(path, table['attributes'][a], table['objects'][o], f'{row.max():.3f}')
