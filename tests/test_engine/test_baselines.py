"""One epoch of each baseline on Shapes, through its config: what learns, and what must not."""
import pytest

PROMPT = 'head.text.prompt.'
VOCABULARY = {PROMPT + 'attributes.vectors', PROMPT + 'objects.vectors'}
CONTEXTS = {PROMPT + f'contexts.{path}' for path in ('attribute', 'object', 'composition')}


def train(run, work_dir, name):
    """Trains on a batch, validates, and returns the model and what moved."""
    runner = run(work_dir, f'{name}_shapes.py', **{
        'train_cfg.max_epochs': 1, 'train_dataloader.dataset.indices': 64,
        'val_dataloader.dataset.indices': list(range(0, 1020, 32)),
        'param_scheduler': None})
    before = {key: p.detach().clone() for key, p in runner.model.named_parameters()}
    runner.train()
    metrics = {key: runner.message_hub.get_scalar(f'val/{key}').current()
               for key in ('czsl/auc', 'czsl_open/auc')}
    assert all(0 <= value <= 100 for value in metrics.values())
    after = dict(runner.model.named_parameters())
    return runner.model, {key for key in before if not before[key].equal(after[key])}


def test_coop_moves_the_context_and_nothing_else(run, tmp_path):
    _, moved = train(run, tmp_path, 'coop')
    assert moved == {PROMPT + 'contexts.shared'}


def test_csp_moves_the_vocabulary_and_nothing_else(run, tmp_path):
    _, moved = train(run, tmp_path, 'csp')
    assert moved == VOCABULARY


def test_troika_moves_all_but_the_towers(run, tmp_path):
    model, moved = train(run, tmp_path, 'troika')

    learns = {key for key, p in model.named_parameters() if p.requires_grad}
    parts = {key for key in learns if '.adapters.' in key or key.startswith(('neck', 'head.tra'))}
    assert learns == parts | VOCABULARY | CONTEXTS
    # Adapters start at zero, so that what comes before it has no gradient in the first step.
    assert learns - moved <= {key for key in learns if '.down.' in key}
    assert moved <= learns
    assert len(model.head.traction.layers) == 2 and model.head.fusion == 'logits'


@pytest.mark.parametrize('name', ['coop', 'csp'])
def test_prompts_alone_leave_the_image_side_as_it_is(run, tmp_path, name):
    model = run(tmp_path, f'{name}_shapes.py').model
    assert model.neck is None
    assert not any(p.requires_grad for p in model.backbone.parameters())
