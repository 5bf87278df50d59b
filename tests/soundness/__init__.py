"""Small programs that try to catch a compiled function out: the world changes between its calls, or a call changes the world.

A program is a function whose only argument is `compile`. It yields what a user could see: results, parameters, gradients, the
state of optimizers and of Python objects. tests/test_compile_soundness.py runs each with a `compile` that does nothing and with
flambeau's: all pieces and all printed text must be the same.
"""
