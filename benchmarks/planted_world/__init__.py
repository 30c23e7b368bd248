"""A simulated world in which the best prompts are known: what `benchmarks/planted.py` runs optimizers on.

A prompt is a set of rule tags such as `[R07]` in free text. Tables that are planted at random say which rules a role
needs for which row, so every program has a true score that can be computed exactly, and the optimum is known. The
optimizer's model knows nothing but what it is shown; the judge knows the truth, spoiled by noise.
"""
