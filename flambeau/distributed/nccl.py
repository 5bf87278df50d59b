"""NCCL. (to come)"""
def available() -> bool:
    return False
