"""`torch.package`: archives of code with its data. Not implemented."""

from .missing import refused

__all__ = """Directory EmptyMatchError GlobGroup Importer ObjMismatchError ObjNotFoundError OrderedImporter PackageExporter
    PackageImporter PackagingError is_from_package sys_importer""".split()
globals().update(refused("package", "packaging code is not implemented", " ".join(__all__)))


def is_from_package(obj: object) -> bool:
    """Whether an object came out of an archive: none did."""
    return False
