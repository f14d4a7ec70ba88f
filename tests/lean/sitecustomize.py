"""Hide from a task what TensorFlow and Keras import only because it is installed here.

They try these packages and do without them, which saves more than a third of their import.
"""

import sys

sys.modules.update(dict.fromkeys(("jax", "matplotlib", "sklearn")))
