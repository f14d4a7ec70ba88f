"""What makes training slow, judged from where the time of its steps goes.

It does no input or output, and reads no clock.

- `judge`: which task holds up the others, how much, and why
- `table`: what is known about each cause
- `memory`: how long the memory of a task that grows will last
"""

from .judge import LEAST_COUNT, judge
from .memory import Growth

__all__ = ["LEAST_COUNT", "Growth", "judge"]
