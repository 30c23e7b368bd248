"""The systems that the paper Agent-as-Tool (arXiv 2507.01489) compares itself with, as far as they need no fine-tuning.

The paper searches the web and we search what the task offers (Wikipedia), so its numbers and ours differ by retriever
and model.
"""
