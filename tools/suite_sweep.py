"""Puts flambeau through what PyTorch's own test files ask of every operation, module and optimizer.

    PYTHONPATH=. python tools/suite_sweep.py                       # what fails under flambeau but not PyTorch, and a table
    PYTHONPATH=. python tools/suite_sweep.py --ops cumsum sort     # only those with one of these in their names
    PYTHONPATH=. python tools/suite_sweep.py --check errors out    # only these kinds of checks (--help lists them)
    PYTHONPATH=. python tools/suite_sweep.py --part 2/8            # every eighth operation, from the second on
    PYTHONPATH=. python tools/suite_sweep.py --table               # the table alone, as it stands in docs/coverage.md

PyTorch's testing package describes each of its operations (OpInfo), modules (ModuleInfo) and optimizers (OptimizerInfo):
samples, samples that must raise, with words of the message, dtypes, a reference in NumPy. The checks are what its test files
make of that. They run in a process of their own in which `torch` means flambeau; whatever fails there is tried again under
PyTorch, and counts only if it passes there. The checks are tools/suite_checks.py.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys

from suite_checks import CHECKS

SECONDS = 20


# ------------------------------------------------------------------------------------- the parent: two processes, a table
def run(options, names, checks, library):
    command = [sys.executable, *(["-m", "flambeau"] if library == "flambeau" else []), __file__, "--inside",
               "--part", options.part, "--check", *checks, "--ops", *names, *(["--exact"] if library == "torch" else [])]
    environment = dict(os.environ, ONEDNN_MAX_CPU_ISA="AVX512_CORE_BF16", PYTHONWARNINGS="ignore")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment,
                          stderr=None if options.verbose else subprocess.DEVNULL) as child:
        for line in child.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if child.returncode:
        print(f"the process under {library} ended with {child.returncode}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", nargs="*", default=[])
    parser.add_argument("--check", nargs="*", default=[], help=" ".join(CHECKS))
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--exact", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        return inside(options)
    checks = options.check or list(CHECKS)
    tally, failed = collections.defaultdict(collections.Counter), []
    for told in run(options, options.ops, checks, "flambeau"):
        tally[told["check"]]["cases"] += 1
        if told["what"]:
            failed.append(told)
    theirs = set()
    if failed:
        for told in run(options, sorted({f["name"] for f in failed}), sorted({f["check"] for f in failed}), "torch"):
            if told["what"]:
                theirs.add((told["check"], told["name"], told["case"]))
    for f in failed:
        if (f["check"], f["name"], f["case"]) in theirs:
            tally[f["check"]]["cases"] -= 1
            continue
        tally[f["check"]]["fail"] += 1
        if not options.table:
            print(f"{f['check']:11} {f['name']:38} {f['case']:24} {f['what']}")
    print("| check | cases | as in PyTorch | otherwise |\n| --- | --- | --- | --- |")
    for name in checks:
        cases, fail = tally[name]["cases"], tally[name]["fail"]
        if cases:
            print(f"| {name} | {cases} | {100 * (cases - fail) / cases:.1f} % | {fail} |")


# ------------------------------------------------------------------------------------------------ the child: the checks
def stop(*_):
    raise TimeoutError(f"more than {SECONDS} s")


def inside(options):
    import signal
    import warnings

    import torch
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, stop)
    part, parts = map(int, options.part.split("/"))
    for name in options.check:
        for i, info in enumerate(infos(name)):
            label = getattr(info, "full_name", None) or getattr(info, "module_cls", getattr(info, "optim_cls", None)).__name__
            if options.exact:
                if label not in options.ops:
                    continue
            elif (options.ops and not any(w in label for w in options.ops)) or (i % parts != part - 1):
                continue
            signal.alarm(SECONDS)
            seen = collections.Counter()
            cases = CHECKS[name](info)
            while True:
                torch.manual_seed(0)
                what, case = "", "samples"
                try:
                    made = next(cases, None)
                    if made is None:
                        break
                    case, job = made
                    job()
                except Exception as error:
                    what = f"{type(error).__name__}: {error}".replace("\n", " ")[:230] or "?"
                    if isinstance(error, TimeoutError):
                        cases = iter(())
                seen[case] += 1
                case = case if seen[case] == 1 else f"{case} #{seen[case]}"
                print(json.dumps(dict(check=name, name=label, case=case, what=what)), flush=True)
            signal.alarm(0)


def infos(name):
    if name.startswith("module"):
        from torch.testing._internal.common_modules import module_db
        return module_db
    if name.startswith("optim"):
        from torch.testing._internal.common_optimizers import optim_db
        return optim_db
    from torch.testing._internal.common_methods_invocations import op_db
    return op_db


if __name__ == "__main__":
    main()
