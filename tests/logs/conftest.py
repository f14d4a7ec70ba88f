from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture
def sample():
    """Read a recorded log by its name."""
    return lambda name: (SAMPLES / f"{name}.log").read_bytes()


@pytest.fixture(params=sorted(path.stem for path in SAMPLES.glob("*.log")))
def any_sample(request):
    return (SAMPLES / f"{request.param}.log").read_bytes()
