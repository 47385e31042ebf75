import pytest
import torch


@pytest.fixture(scope='session', autouse=True)
def one_thread():
    """Small models are slower with several threads, and the suite runs in two processes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
