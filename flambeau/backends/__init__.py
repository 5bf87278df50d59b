"""Where arrays live and kernels run. Nothing above this folder knows NumPy.

A backend is a module with `KERNELS` (name -> function over its arrays) and a few functions on arrays. The array's type
says which backend it belongs to: `backend_of(array)`.
"""
