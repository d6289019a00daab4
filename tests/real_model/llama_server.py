"""A llama.cpp server in a process of its own: `python llama_server.py GGUF TOKENS` prints its address, and serves until
its standard input ends.
"""

import os
import sys

import xllamacpp  # type: ignore[import-not-found,import-untyped,unused-ignore]


def main() -> None:
    path, tokens = sys.argv[1:]
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = int(tokens)
    params.n_parallel = 1
    params.port = 0
    params.use_jinja = True
    params.warmup = False
    params.endpoint_slots = True
    params.cpuparams.n_threads = 2
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)  # noqa: T201
    sys.stdin.read()
    os._exit(0)  # the server's threads would go on


if __name__ == "__main__":
    main()
