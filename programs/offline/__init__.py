"""The parts of the embedded rule-based model (see `programs/offline_lm.py`)."""
