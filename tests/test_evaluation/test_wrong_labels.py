"""Labels that are likely wrong, against the formula written with loops and flipped labels."""
import numpy as np
import pytest
import torch

from mmcluspro.evaluation.wrong_labels import confident_errors, held_out_answers


@pytest.mark.parametrize('images, classes', [(1, 1), (40, 2), (200, 7)])
def test_the_confident_joint_is_that_of_the_paper(images, classes):
    rng = np.random.default_rng(images)
    answers = rng.dirichlet(np.full(classes, 0.4), images)
    labels = rng.integers(classes, size=images)
    expected = []
    for answer, label in zip(answers, labels):
        counting = [j for j in range(classes) if answer[j] >= 0.5 and (labels == j).any()
                    and answer[j] >= answers[labels == j, j].mean()]
        expected.append(max(counting, key=lambda j: answer[j]) if counting else label)
    found = confident_errors(torch.from_numpy(answers), torch.from_numpy(labels))
    assert found.tolist() == expected


def test_flipped_labels_are_found_and_others_are_not():
    rng = np.random.default_rng(0)
    right = np.arange(150) % 3
    features = rng.normal(size=(150, 8)) + 9 * np.eye(8)[right]
    given, flipped = right.copy(), rng.choice(150, 8, replace=False)
    given[flipped] = (right[flipped] + 1) % 3
    answers = held_out_answers(torch.from_numpy(features), torch.from_numpy(given), 3)
    assert answers.sum(dim=1) == pytest.approx(np.ones(150), abs=1e-5)
    likely = confident_errors(answers, torch.from_numpy(given)).numpy()
    named = set(np.flatnonzero(likely != given))
    assert len(named & set(flipped)) >= 7 and not named - set(flipped)
    assert (likely == right)[sorted(named)].all()


def test_an_answer_comes_from_images_that_are_not_the_one_that_is_answered():
    """Features that name each image let a fit repeat its label, but not a held-out answer."""
    labels = torch.arange(60) % 2
    answers = held_out_answers(torch.eye(60), labels, 2)
    assert answers.gather(1, labels[:, None]).max() < 0.7
