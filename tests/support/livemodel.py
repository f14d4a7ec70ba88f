"""What live cells train in tests: state of each kind that an error could leave behind."""

NETWORK = """
def network():
    '''Return a compiled model with weights, moving means, seeds and metrics.'''
    model = tf.keras.Sequential([
        tf.keras.Input((16,)),
        tf.keras.layers.Dense(8, activation="relu"),
        tf.keras.layers.BatchNormalization(),
        tf.keras.layers.Dropout(0.2),
        tf.keras.layers.Dense(1, activation="sigmoid"),
    ])
    model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return model
"""
