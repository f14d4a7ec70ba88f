"""The same work for mwmagic and its peers, each in a kernel of an environment of its own."""
