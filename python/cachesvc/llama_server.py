#!/usr/bin/env python3
"""cachesvc-llama-server: llama.cpp's own HTTP server where no program llama-server is: that of the
wheel xllamacpp, which `pip install './python[llama]'` brings in the version that fits.

    cachesvc-llama-server -m MODEL.gguf [--host H] [--port N] [--slot-save-path DIR] [-c N] [-np N]
                          [-t N] [-ngl N] [-ctk TYPE] [-ctv TYPE]

Its options are those of llama-server that have these names. A script of its own too, which imports
nothing of this package: tools/chat_demo runs it so.
"""
from __future__ import annotations

import argparse
import threading
from typing import Optional, Sequence


def main(given: Optional[Sequence[str]] = None) -> None:
    p = argparse.ArgumentParser(prog="cachesvc-llama-server", description=__doc__.split("\n\n")[0])
    p.add_argument("-m", "--model", required=True, metavar="MODEL.gguf")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8080, help="0: any")
    p.add_argument("--slot-save-path", default="", metavar="DIR")
    p.add_argument("-c", "--ctx-size", type=int, default=4096)
    p.add_argument("-np", "--parallel", type=int, default=1, help="slots")
    p.add_argument("-t", "--threads", type=int, default=2)
    p.add_argument("-ngl", "--gpu-layers", type=int)
    p.add_argument("-ctk", "--cache-type-k", default="f16")
    p.add_argument("-ctv", "--cache-type-v", default="f16")
    serve(p.parse_args(given))


def serve(options: argparse.Namespace) -> None:
    """Until the process is ended; its address is printed first."""
    import xllamacpp  # not needed for --help
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.hostnames = [options.host]
    params.port = options.port
    params.n_ctx, params.n_parallel = options.ctx_size, options.parallel
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    if options.gpu_layers is not None:
        params.n_gpu_layers = options.gpu_layers
    params.slot_save_path = options.slot_save_path
    params.endpoint_slots = True
    types = xllamacpp.ggml_type
    params.cache_type_k = getattr(types, "GGML_TYPE_" + options.cache_type_k.upper())
    params.cache_type_v = getattr(types, "GGML_TYPE_" + options.cache_type_v.upper())
    params.verbosity = -1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
