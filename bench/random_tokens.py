#!/usr/bin/env python3
"""Random token file in llm.c's format, the same bytes every time: bench/random_tokens.py VOCABULARY COUNT FILE"""
import array
import random
import sys

vocabulary, count, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
draw = random.Random(1)
header = array.array("i", [20240520, 1, count] + [0] * 253)
tokens = array.array("H", (draw.randrange(vocabulary) for _ in range(count)))
if sys.byteorder == "big":
    header.byteswap(), tokens.byteswap()
with open(path, "wb") as file:
    header.tofile(file)
    tokens.tofile(file)
