"""The agent: one small process per machine that starts and watches the workers."""
