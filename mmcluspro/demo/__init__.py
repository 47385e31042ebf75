"""The web page of ``mmcluspro demo``: :mod:`.logic` answers, :mod:`.app` lays out.

Only :mod:`.app` needs Gradio.
"""
