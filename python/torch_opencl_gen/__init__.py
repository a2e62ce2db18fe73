"""Build-time code generation: op tables and kernel files into C++ sources.

A package of its own, so that it can run before the extension exists.
"""
