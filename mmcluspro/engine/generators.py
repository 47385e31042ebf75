"""The state of the random generators as tensors, which a checkpoint can hold."""
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

State = dict[str, Tensor]


def generator_state() -> State:
    """State of the generators of python, numpy, torch and the current GPU."""
    version, words, gauss = random.getstate()
    numpy_state: Any = np.random.get_state()
    _, keys, place, has_gauss, cached = numpy_state
    state = dict(
        python=torch.tensor([version, *words]),
        python_gauss=torch.tensor(float('nan') if gauss is None else gauss, dtype=torch.float64),
        numpy=torch.tensor([*keys.tolist(), place, has_gauss]),
        numpy_gauss=torch.tensor(cached, dtype=torch.float64),
        torch=torch.get_rng_state())
    if torch.cuda.is_available():
        state['cuda'] = torch.cuda.get_rng_state()
    return state


def restore_generators(state: State) -> None:
    """Puts the generators where :func:`generator_state` found them."""
    version, *words = state['python'].tolist()
    gauss: Any = float(state['python_gauss'])
    random.setstate((version, tuple(words), None if gauss != gauss else gauss))
    *keys, place, has_gauss = state['numpy'].tolist()
    np.random.set_state(('MT19937', np.array(keys, dtype=np.uint32), place, has_gauss,
                         float(state['numpy_gauss'])))
    torch.set_rng_state(state['torch'].cpu())
    if 'cuda' in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state['cuda'].cpu())
