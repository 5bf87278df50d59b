"""Process groups over MPI, through mpi4py; imported when the first group of several processes is made.

start.py makes the processes one world of MPI's, pmi.py is how they find one another where no mpiexec started them, requests.py
waits for what is under way, engine.py says each collective in MPI's words, agreement.py notices ranks that do different things.
"""
