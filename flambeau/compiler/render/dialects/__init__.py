"""How the data of a program becomes text.

c.py, c_statements.py, c_loops.py, c_program.py    C for the CPU: the only files of the compiler that know it
cuda.py                                            loop nests as CUDA C kernels
"""
