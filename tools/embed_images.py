#!/usr/bin/env python3
"""Writes a C file that embeds the kernels' fatbins (kernels/cuda/images.h).

    tools/embed_images.py OUTPUT [FATBIN...]
"""
import os
import sys


def main():
    output, images = sys.argv[1], sys.argv[2:]
    with open(output, "w", encoding="utf-8") as out:
        out.write('#include "kernels/cuda/images.h"\n')
        for i, path in enumerate(images):
            out.write(f'__asm__(".section .rodata\\n.balign 16\\ngpu_image_{i}:\\n"\n'
                      f'        ".incbin \\"{os.path.abspath(path)}\\"\\n.previous\\n");\n'
                      f"extern const char gpu_image_{i}[];\n")
        names = "".join(f"gpu_image_{i}, " for i in range(len(images)))
        out.write(f"const void *const gpu_images[] = {{{names}NULL}};\n"
                  f"const size_t n_gpu_images = {len(images)};\n")


if __name__ == "__main__":
    main()
