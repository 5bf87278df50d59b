"""`torch.export`: programs for other runtimes are not written here. `torch.fx.symbolic_trace` gives a module's graph."""

from .missing import refused

__all__ = """Constraint CustomDecompTable Dim ExportBackwardSignature ExportGraphSignature ExportedProgram FlatArgsAdapter
    ModuleCallEntry ModuleCallSignature ShapesCollection UnflattenedModule default_decompositions dims draft_export export
    export_for_training load register_dataclass save unflatten""".split()
globals().update(refused("export", "exporting programs is not implemented (fx.symbolic_trace gives a module's graph)",
                         " ".join(__all__)))
