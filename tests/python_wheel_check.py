#!/usr/bin/env python3
"""The wheel of python/: pure, all modules in it, needs numpy alone, and is imported as installed.

usage: python_wheel_check.py PYTHON_FOLDER
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

# Of an engine, which they import.
WITH_ENGINES = {"lmcache", "mlx", "mlx_caches", "mlx_files", "mlx_teacher", "sglang", "teacher",
                "transformers", "vllm"}
source = pathlib.Path(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    copy = pathlib.Path(folder, "python")  # a build leaves files beside its sources
    built = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", ".mypy_cache")
    shutil.copytree(source, copy, ignore=built)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation",
                    "--no-deps", "--no-index", "--wheel-dir", folder, str(copy)], check=True)
    wheels = list(pathlib.Path(folder).glob("*.whl"))
    assert [w.name.split("-", 2)[2] for w in wheels] == ["py3-none-any.whl"], wheels
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = wheel.namelist()
        metadata = wheel.read(next(n for n in names if n.endswith("METADATA"))).decode()
        wheel.extractall(os.path.join(folder, "installed"))
    needs = [line for line in metadata.splitlines()
             if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert len(needs) == 1 and "numpy" in needs[0], needs
    modules = {p.name for p in (source / "cachesvc").iterdir()
               if p.suffix in (".py", ".typed", ".txt")}
    packed = {n.split("/")[1] for n in names if n.startswith("cachesvc/")}
    assert packed == modules, packed ^ modules
    imports = "; ".join(f"import cachesvc.{name[:-3]}" for name in sorted(modules)
                        if name.endswith(".py") and name[:-3] not in {"__init__", *WITH_ENGINES})
    subprocess.run([sys.executable, "-B", "-c", imports], check=True,
                   cwd=os.path.join(folder, "installed"))
print("the wheel is whole")
