#!/usr/bin/env python3
"""llama-server where only the xllamacpp wheel is: llama.cpp's own HTTP server, which that wheel has
without the program. It takes those options of llama-server that tests and tools/chat_demo use.

usage: llama_server.py -m MODEL.gguf --port N [--slot-save-path DIR] [-c N] [-np N] [-t N]
                       [-ctk TYPE] [-ctv TYPE]
"""
import argparse
import threading

import xllamacpp


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-m")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int)
    p.add_argument("--slot-save-path", default="")
    p.add_argument("-c", type=int, default=4096)
    p.add_argument("-np", type=int, default=1)
    p.add_argument("-t", type=int, default=2)
    p.add_argument("-ctk", default="f16")
    p.add_argument("-ctv", default="f16")
    given = p.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = given.m
    params.hostnames = [given.host]
    params.port = given.port
    params.n_ctx, params.n_parallel = given.c, given.np
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = given.t
    params.slot_save_path = given.slot_save_path
    params.endpoint_slots = True
    params.cache_type_k = getattr(xllamacpp.ggml_type, "GGML_TYPE_" + given.ctk.upper())
    params.cache_type_v = getattr(xllamacpp.ggml_type, "GGML_TYPE_" + given.ctv.upper())
    params.verbosity = -1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
