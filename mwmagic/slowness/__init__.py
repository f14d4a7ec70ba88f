"""What makes training slow, judged from where the time of its steps goes.

It does no input or output, and reads no clock.

- `judge`: which task holds up the others, how much, and why
- `table`: what is known about each cause
"""
